# The first changes after a resource version, as many as asked for.
def events(count, resource_version)
  changes = []
  CORE.watch_secrets(namespace: NAMESPACE, resource_version: resource_version) do |change|
    changes << change
    break changes if changes.size == count
  end
end

def summary(changes)
  changes.map { |change| [change.type, change.object.metadata.name] }
end

list = CORE.get_secrets(namespace: NAMESPACE)
CORE.create_secret(secret("a"))
first = events(1, list.resourceVersion)
same [%w[ADDED a]], summary(first)
CORE.delete_secret("a", NAMESPACE)
CORE.create_secret(secret("large"))
same [%w[DELETED a], %w[ADDED large]], summary(events(2, first.last.object.metadata.resourceVersion))

55.times do |number| # more than is remembered
  CORE.merge_patch_secret("large", { data: { a: [number.chr * 720_000].pack("m0") } }, NAMESPACE)
end
late = events(1, list.resourceVersion).first
same ["ERROR", 410, "Expired"], [late.type, late.object.code, late.object.reason]
list = CORE.get_secrets(namespace: NAMESPACE)
CORE.delete_secret("large", NAMESPACE)
same [%w[DELETED large]], summary(events(1, list.resourceVersion))
