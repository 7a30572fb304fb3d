# The client, unmodified, and what its tests have in common.
require "json"
require "kubeclient"

KNOWN = JSON.parse($stdin.read, symbolize_names: true)
NAMESPACE = KNOWN[:namespace]
CONTEXT = Kubeclient::Config.read(ENV["KUBECONFIG"]).context
SET = KNOWN[:set].merge(metadata: { name: "web", namespace: NAMESPACE })

def client(path, version)
  known = { ssl_options: CONTEXT.ssl_options, auth_options: CONTEXT.auth_options }
  Kubeclient::Client.new("#{CONTEXT.api_endpoint}/#{path}", version, **known)
end

CORE = client("api", "v1")
KUBEVIRT = client("apis/kubevirt.io", "v1")

def secret(name, **more)
  { metadata: { name: name, namespace: NAMESPACE, **more } }
end

def names(found)
  found.map { |each| each.metadata.name }
end

def same(expected, found)
  raise "expected #{expected.inspect}, found #{found.inspect}" unless expected == found
end

same(KNOWN[:release], Kubeclient::VERSION[/\A\d+\.\d+/])

# The error with which a request is refused.
def refused
  yield
rescue Kubeclient::HttpError => error
  error
else
  raise "it was not refused"
end
