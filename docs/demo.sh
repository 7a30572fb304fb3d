#!/bin/sh
# The main job, narrated: a replica set keeps three real machines alive; then a pool, whose machines have
# names, and disks, of their own; then a warm pool, from which a set grows in a moment.  Every line that starts with $ is a command that a user could type; what
# follows is what came back.  Leaves nothing behind.
set -eu
data=$(mktemp -d "${TMPDIR:-/tmp}/corral-demo.XXXXXX")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/corral
export CORRAL_DATA_DIR="$data"
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi

say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
run() {
    printf '%s$ %s%s\n' "$bold" "$*" "$plain"
    "$@"
}
# Which machine answers a new connection to the Service.
ask() {
    curl --silent --max-time 5 "http://127.0.0.1:$node_port/" || true
}
# Asks until so many machines have answered, each at least once.
await_answers() {
    answers='' deadline=$(($(date +%s) + 60))
    until [ "$(echo "$answers" | sort -u | wc -l)" = $(($1 + 1)) ]; do
        [ "$(date +%s)" -lt $deadline ] || { echo "not all of them answered: $answers" >&2; exit 1; }
        answers="$answers
$(ask)"
    done
}
finish() {
    code=$?
    trap - EXIT
    [ $code = 0 ] || { echo "the demo failed; the manager's last words:" >&2; tail -n 20 "$data/corral.log" >&2 || true; }
    corral down >/dev/null 2>&1 || true
    rm -rf "$data"
    exit $code
}
trap finish EXIT
trap 'exit 130' INT TERM

say "A small Linux guest, built here from Debian packages (kept in $cache for the next time)"
run corral image build-demo --cache "$cache"

say "The manager: API server, controllers and node agent in one process"
run corral up --detach --bind "127.0.0.1:$port"
KUBECONFIG=$(corral kubeconfig)
export KUBECONFIG
printf '%s$ export KUBECONFIG=$(corral kubeconfig)%s\n' "$bold" "$plain"

say "Three machines, from the manifest of KubeVirt's user guide"
run kubectl create -f examples/testreplicaset.yaml
run kubectl wait vmirs testreplicaset --for 'jsonpath={.status.readyReplicas}=3' --timeout 180s
run kubectl get vmirs,vmi,pods
run kubectl describe vmirs testreplicaset

say "Ready means that a machine runs; a moment later its guest is up, as its console shows"
vmi=$(kubectl get vmi -o 'jsonpath={.items[0].metadata.name}')
run corral console "$vmi" --expect 'login:' --timeout 3m

say "A Service in front of the set: connections go to all of its machines"
run corral expose vmirs testreplicaset --name web --port 80 --type NodePort
run kubectl get service web
node_port=$(kubectl get service web -o 'jsonpath={.spec.ports[0].nodePort}')
printf '%s$ curl http://127.0.0.1:%s/%s    # until each of the three has answered\n' "$bold" "$node_port" "$plain"
await_answers 3
echo "$answers" | sed '/^$/d' | sort | uniq -c

say "Scale to five with kubectl"
run kubectl scale vmirs testreplicaset --replicas 5
run kubectl wait vmirs testreplicaset --for 'jsonpath={.status.readyReplicas}=5' --timeout 180s
run kubectl get vmirs

say "A machine that is deleted is replaced at once"
run kubectl delete vmi "$vmi" --wait=false
run kubectl wait vmi "$vmi" --for delete --timeout 120s
run kubectl wait vmirs testreplicaset --for 'jsonpath={.status.readyReplicas}=5' --timeout 180s
run kubectl get vmi

say "The manager dies; the machines do not notice, and the next manager takes them over"
before=$(kubectl get vmi -o 'jsonpath={range .items[*]}{.metadata.uid} {end}')
printf '%s$ kill -9 %s%s\n' "$bold" '$(the manager)' "$plain"
kill -9 "$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["pid"])' "$data/lock")"
run corral up --detach --bind "127.0.0.1:$port"
run kubectl get vmi
after=$(kubectl get vmi -o 'jsonpath={range .items[*]}{.metadata.uid} {end}')
[ "$before" = "$after" ] || { echo "the machines changed: $before → $after" >&2; exit 1; }
echo "the same five machines as before"

say "And it all goes again"
run kubectl delete vmirs testreplicaset
run kubectl wait vmi --all --for delete --timeout 120s

say "Second act: a pool.  Its machines are numbered, and each has a disk of its own"
run kubectl create -f examples/vm-pool-disks.yaml
run kubectl wait vmpool vm-pool-disks --for 'jsonpath={.status.readyReplicas}=2' --timeout 300s
run kubectl get vmpool,vm,dv,pvc

say "One VirtualMachine leaves the pool and lives on; another takes the next number"
run kubectl patch vm vm-pool-disks-0 --type merge --patch '{"metadata":{"ownerReferences":null}}'
run kubectl wait vm vm-pool-disks-2 --for create --timeout 60s
run kubectl wait vm vm-pool-disks-2 --for condition=Ready --timeout 300s
run kubectl get vm

say "The pool shrinks to nothing, but keeps the disks: on the way back each finds its own"
disk=$(kubectl get dv vm-pool-disks-root-1 -o 'jsonpath={.metadata.uid}')
run kubectl scale vmpool vm-pool-disks --replicas 0
run kubectl wait vm vm-pool-disks-1 vm-pool-disks-2 --for delete --timeout 120s
run kubectl get vm,dv
run kubectl scale vmpool vm-pool-disks --replicas 1
run kubectl wait vm vm-pool-disks-1 --for create --timeout 60s
run kubectl wait vm vm-pool-disks-1 --for condition=Ready --timeout 300s
[ "$(kubectl get dv vm-pool-disks-root-1 -o 'jsonpath={.metadata.uid}')" = "$disk" ] || { echo "the disk is another one" >&2; exit 1; }
run kubectl events --for vmpool/vm-pool-disks

say "Disks that were kept are nobody's: they stay until they are deleted"
run kubectl delete vmpool vm-pool-disks
run kubectl delete vm vm-pool-disks-0
run kubectl delete dv vm-pool-disks-root-2
run kubectl wait vmi,pvc --all --for delete --timeout 120s

say "Third act: machines in an instant.  A set of three, and a warm pool that keeps seven more booted"
run kubectl create -f examples/testreplicaset.yaml -f examples/warm-pool.yaml
run kubectl scale vmwp spares --replicas 7
run kubectl wait vmwp spares --for 'jsonpath={.status.readyReplicas}=7' --timeout 180s
run kubectl wait vmi --all --for condition=AgentConnected --timeout 300s
run corral expose vmirs testreplicaset --name web --port 80 --type NodePort
node_port=$(kubectl get service web -o 'jsonpath={.spec.ports[0].nodePort}')

say "From three to ten machines that answer"
began=$(date +%s%N)
run kubectl scale vmirs testreplicaset --replicas 10
printf '%s$ curl http://127.0.0.1:%s/%s    # until each of the ten has answered\n' "$bold" "$node_port" "$plain"
await_answers 10
echo "ten machines have answered $((($(date +%s%N) - began) / 1000000)) ms after the command, kubectl's own time included"
run kubectl get vmirs,vmwp

say "One spare for a job, which nobody gets again"
run kubectl wait vmwp spares --for 'jsonpath={.status.readyReplicas}=7' --timeout 300s
run kubectl scale vmwp spares --replicas 1
run corral claim spares --name job --ttl 10m
run kubectl get vmclaim
run corral release job
run kubectl delete vmwp spares
run kubectl delete vmirs testreplicaset
run kubectl wait vmi --all --for delete --timeout 120s
run corral status
run corral down
say "Done"
