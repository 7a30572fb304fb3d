# Flattens YAML (and JSON, which YAML contains) into lines `path<TAB>value`:
#
#     users:                       users.0.name	alice
#     - name: alice           ->   runcmd.0.0	touch
#     runcmd: [[touch, /tmp/x]]    runcmd.0.1	/tmp/x
#
# In values, backslash, tab and newline stand as \\ \t \n: `printf %b` gives them back.
# Understood is what people write into cloud-init files: block and flow collections, quoted and
# plain scalars, | and > blocks. Not understood: anchors, tags, several documents.

{ sub(/\r$/, ""); lines[++last] = $0 }

END {
    at = 1
    if (lines[1] ~ /^---/) at = 2
    block("", 0)
}

function depth(line) { match(line, /^ */); return RLENGTH }
function trim(text) { sub(/^[ \t]+/, "", text); sub(/[ \t]+$/, "", text); return text }
function below(path, key) { return path == "" ? key : path "." key }

function skip_blank() { while (at <= last && lines[at] ~ /^[ \t]*(#.*)?$/) at++ }
function is_item(line) { return line ~ /^ *-([ \t]|$)/ }

function emit(path, value) {
    gsub(/\\/, "&&", value); gsub(/\t/, "\\t", value); gsub(/\n/, "\\n", value)
    print path "\t" value
}

# A collection whose lines are indented by at least `least` spaces.
function block(path, least,   indent) {
    skip_blank()
    if (at > last) return
    indent = depth(lines[at])
    if (indent < least) return
    if (is_item(lines[at])) sequence(path, indent)
    else if (key_end(lines[at])) mapping(path, indent)
    else value(trim(lines[at]), path, indent - 1)
}

function sequence(path, indent,   n, rest) {
    for (n = 0; ; n++) {
        skip_blank()
        if (at > last || depth(lines[at]) != indent || !is_item(lines[at])) return
        sub(/-/, " ", lines[at])
        rest = trim(lines[at])
        if (rest !~ /^[[{"'|>]/ && (is_item(rest) || key_end(rest))) block(below(path, n), indent + 1)
        else if (rest ~ /^["']/ && key_end(rest)) block(below(path, n), indent + 1)
        else value(rest, below(path, n), indent)
    }
}

function mapping(path, indent,   end, key, rest) {
    for (;;) {
        skip_blank()
        if (at > last || depth(lines[at]) != indent || is_item(lines[at])) return
        end = key_end(lines[at])
        if (!end) { at++; continue }
        key = unquote(trim(substr(lines[at], 1, end - 1)))
        rest = trim(substr(lines[at], end + 1))
        if (rest == "" || rest ~ /^#/) {
            at++; skip_blank()
            if (at <= last && depth(lines[at]) == indent && is_item(lines[at])) sequence(below(path, key), indent)
            else block(below(path, key), indent + 1)
        } else value(rest, below(path, key), indent)
    }
}

# Where the colon that ends a key stands in this line; 0 if the line holds no key.
function key_end(line,   start, quote, n) {
    start = depth(line) + 1
    quote = substr(line, start, 1)
    if (quote == "\"" || quote == "'") {
        n = index(substr(line, start + 1), quote)
        if (!n) return 0
        n += start + 1
        return substr(line, n) ~ /^[ \t]*:([ \t]|$)/ ? n + index(substr(line, n), ":") - 1 : 0
    }
    if (quote ~ /[[{]/) return 0
    return match(line, /:([ \t]|$)/) && substr(line, 1, RSTART) !~ /[ \t]#/ ? RSTART : 0
}

# A scalar or a flow collection that begins with `text`, in a collection indented by `indent`.
function value(text, path, indent) {
    if (text == "" || text ~ /^#/) { at++; block(path, indent + 1) }
    else if (text ~ /^[|>][-+0-9]*([ \t]+#.*)?$/) literal(text, path, indent)
    else if (text ~ /^[[{]/) { flow_text = joined(text, indent); flow_at = 1; flow(path) }
    else if (text ~ /^["']/) { flow_text = joined(text, indent); flow_at = 1; emit(path, quoted()) }
    else emit(path, plain(joined(text, indent)))
}

# This line and those that continue it, as one text.
function joined(text, indent) {
    if (text !~ /^["'[{]/) text = plain(text)
    for (at++; at <= last; at++) {
        if (lines[at] ~ /^[ \t]*$/) continue
        if (depth(lines[at]) <= indent && !(text ~ /^[[{]/ && lines[at] ~ /^ *[]}]/)) break
        text = text " " trim(lines[at])
    }
    return text
}

function plain(text) { sub(/[ \t]+#.*$/, "", text); return text }
function unquote(text) { return text ~ /^".*"$/ || text ~ /^'.*'$/ ? substr(text, 2, length(text) - 2) : text }

# A | or > block: its indentation is that of its first line.
function literal(head, path, indent,   text, inner, line, folded, gap) {
    folded = head ~ /^>/
    inner = -1; text = ""; gap = ""
    for (at++; at <= last; at++) {
        line = lines[at]
        if (line ~ /^[ \t]*$/) { gap = gap "\n"; continue }
        if (inner < 0) inner = depth(line)
        if (depth(line) < inner || inner <= indent) break
        text = text (text == "" ? gap : folded ? (gap == "" ? " " : gap) : "\n" gap) substr(line, inner + 1)
        gap = ""
    }
    if (head ~ /\+/) text = text "\n" gap
    else if (head !~ /-/ && text != "") text = text "\n"
    emit(path, text)
}

function flow_char() {
    while (substr(flow_text, flow_at, 1) ~ /^[ \t]$/) flow_at++
    return substr(flow_text, flow_at, 1)
}

function flow(path,   open, n, key, before) {
    open = flow_char()
    if (open != "[" && open != "{") { emit(path, flow_scalar(",]}")); return }
    flow_at++
    for (n = 0; flow_at <= length(flow_text) && !index("]}", flow_char()); n++) {
        before = flow_at
        key = n
        if (open == "{") { key = flow_scalar(":,]}"); if (flow_char() == ":") flow_at++ }
        flow(below(path, key))
        if (flow_char() == "," || flow_at == before) flow_at++
    }
    flow_at++
}

function flow_scalar(stops,   start) {
    if (index("\"'", flow_char())) return quoted()
    start = flow_at
    while (flow_at <= length(flow_text) && !index(stops, substr(flow_text, flow_at, 1))) flow_at++
    return trim(substr(flow_text, start, flow_at - start))
}

# The quoted scalar at flow_at; leaves flow_at behind its closing quote.
function quoted(   quote, text, c) {
    quote = substr(flow_text, flow_at++, 1)
    text = ""
    for (; flow_at <= length(flow_text); flow_at++) {
        c = substr(flow_text, flow_at, 1)
        if (c == quote && quote == "'" && substr(flow_text, flow_at + 1, 1) == "'") flow_at++
        else if (c == quote) break
        else if (c == "\\" && quote == "\"") c = escape(substr(flow_text, ++flow_at, 1))
        text = text c
    }
    flow_at++
    return text
}

function escape(c) { return c == "n" ? "\n" : c == "t" ? "\t" : c == "r" ? "\r" : c }
