%w[get create update delete watch patch json_patch merge_patch apply].each do |verb|
  same true, KUBEVIRT.respond_to?("#{verb}_virtual_machine_instance#{"s" if verb == "watch"}")
end
same true, client("apis/pool.kubevirt.io", "v1beta1").respond_to?(:get_virtual_machine_pools)
same false, KUBEVIRT.respond_to?(:get_nonsense)
