%w[a b c d e].each do |name|
  CORE.create_secret(secret(name, labels: { vowel: %w[a e].include?(name).to_s }))
end
page = CORE.get_secrets(namespace: NAMESPACE, limit: 3)
same [%w[a b c], false], [names(page), page.last?]
rest = CORE.get_secrets(namespace: NAMESPACE, limit: 3, continue: page.continue)
same [%w[d e], true], [names(rest), rest.last?]
same %w[a e], names(CORE.get_secrets(namespace: NAMESPACE, label_selector: "vowel=true"))
same %w[c], names(CORE.get_secrets(namespace: NAMESPACE, field_selector: "metadata.name=c"))
