# Prints cloud-init's `runcmd`, flattened by yaml.awk, as a shell script: a list is one command whose
# words are quoted, a text is shell as it stands.

BEGIN { FS = "\t" }

$1 ~ /^runcmd\.[0-9]+(\.[0-9]+)?$/ {
    depth = split($1, path, ".")
    text = unescaped(substr($0, length($1) + 2))
    if (depth == 3 && path[2] == command) printf " "
    else if (command != "") printf "\n"
    command = path[2]
    if (depth == 3) gsub(/'/, "'\"'\"'", text)
    printf depth == 3 ? "'%s'" : "%s", text
}

END { if (command != "") printf "\n" }

function unescaped(text,   out, c) {
    out = ""
    while (match(text, /\\./)) {
        c = substr(text, RSTART + 1, 1)
        out = out substr(text, 1, RSTART - 1) (c == "n" ? "\n" : c == "t" ? "\t" : c)
        text = substr(text, RSTART + 2)
    }
    return out text
}
