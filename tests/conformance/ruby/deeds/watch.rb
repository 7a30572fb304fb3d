# The first changes after a resource version, as many as asked for.
def told(count, resource_version)
  changes = []
  CORE.watch_secrets(namespace: NAMESPACE, resource_version: resource_version) do |change|
    changes << change
    break changes if changes.size == count
  end
end

def told_of(changes)
  changes.map { |change| [change.type, change.object.metadata.name] }
end

list = CORE.get_secrets(namespace: NAMESPACE)
CORE.create_secret(secret("a"))
first = told(1, list.resourceVersion)
same [%w[ADDED a]], told_of(first)
CORE.delete_secret("a", NAMESPACE)
CORE.create_secret(secret("large"))
same [%w[DELETED a], %w[ADDED large]], told_of(told(2, first.last.object.metadata.resourceVersion))

55.times do |number| # more than is remembered
  CORE.merge_patch_secret("large", { data: { a: [number.chr * 720_000].pack("m0") } }, NAMESPACE)
end
late = told(1, list.resourceVersion).first
same ["ERROR", 410, "Expired"], [late.type, late.object.code, late.object.reason]
list = CORE.get_secrets(namespace: NAMESPACE)
CORE.delete_secret("large", NAMESPACE)
same [%w[DELETED large]], told_of(told(1, list.resourceVersion))
