#!/bin/sh
# Takes podseidon out of one cluster completely, whatever its state:
#
#   sh manifests/uninstall.sh [--complete-deletions] [flags for kubectl, such as --context worker-1]
#
# With several clusters, run it in each worker cluster first, then in the core clusters. The protection ends with its
# first change. It can be repeated, and exits with 0 when podseidon is gone.
#
# A workload whose deletion is held goes as soon as its finalizer is off, and takes its pods with it. Where there is
# such a workload, it changes nothing and exits with 1, unless --complete-deletions is its first argument.
set -eu

NAMESPACE=podseidon-system
FINALIZER=podseidon.kubewharf.io/generator
GATE=podseidon.kubewharf.io/counted
PASSES=5
WAIT=180s
completes=no
if [ "${1:-}" = --complete-deletions ]; then completes=yes; shift; fi

# kubectl with the flags of this call; the command comes as the arguments.
flags=""
for word in "$@"; do flags="$flags '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
k() { eval "set -- $flags \"\$@\""; kubectl "$@"; }

# Ends the script if the objects of a kind can't be listed. A kind that is not installed has none.
readable() {
  if problem=$(k get "$1" --all-namespaces -o name 2>&1 >/dev/null); then return; fi
  case "$problem" in *"doesn't have a resource type"*) ;; *) echo "$problem" >&2; exit 1 ;; esac
}

named_podseidon() { k get "$1" -o name 2>/dev/null | grep -E '/podseidon(-|$)' || true; }

delete_named() {
  for kind in "$@"; do
    readable "$kind"
    for object in $(named_podseidon "$kind"); do k delete "$object" --ignore-not-found; done
  done
}

delete_webhook_configurations() { delete_named validatingwebhookconfigurations mutatingwebhookconfigurations; }

# namespace, name and position of the finalizer, a line for each object that has it
holding() {
  k get "$1" --all-namespaces -o go-template='{{range .items}}{{$o := .metadata}}{{range $i, $f := .metadata.finalizers}}{{if eq $f "'"$FINALIZER"'"}}{{$o.namespace}} {{$o.name}} {{$i}}{{"\n"}}{{end}}{{end}}{{end}}' 2>/dev/null || true
}

# Takes the finalizer off every object of a kind. If its position has changed meanwhile, the patch fails, and the next
# pass removes it.
remove_finalizers() {
  readable "$1"
  pass=0
  while [ "$pass" -lt "$PASSES" ] && [ -n "$(holding "$1")" ]; do
    holding "$1" | while read -r namespace name index; do
      k patch "$1" --namespace "$namespace" "$name" --type=json --patch \
        '[{"op":"test","path":"/metadata/finalizers/'"$index"'","value":"'"$FINALIZER"'"},{"op":"remove","path":"/metadata/finalizers/'"$index"'"}]' \
        </dev/null || true
    done
    pass=$((pass + 1))
  done
  [ -z "$(holding "$1")" ] || { echo "finalizers are left on $1: run this again" >&2; exit 1; }
}

# namespace and name of the pods with the counted gate that nobody has opened, a line for each
gated() {
  k get pods --all-namespaces -o go-template='{{range $p := .items}}{{$open := false}}{{range .status.conditions}}{{if eq .type "'"$GATE"'"}}{{if eq .status "True"}}{{$open = true}}{{end}}{{end}}{{end}}{{if not $open}}{{range .spec.readinessGates}}{{if eq .conditionType "'"$GATE"'"}}{{$p.metadata.namespace}} {{$p.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}'
}

# The kinds that can hold the finalizer: the usual ones, and the source kinds of the protectors. Labels name a source's
# kind; owner references name it too, because a long group does not fit into a label.
sources() {
  printf '%s\n' deployments.apps statefulsets.apps replicasets.apps daemonsets.apps replicationcontrollers \
    poddisruptionbudgets.policy podunavailablebudgets.policy.kruise.io xpoddisruptionbudgets.x-pdb.form3.tech
  k get podprotectors.podseidon.kubewharf.io --all-namespaces -o go-template='{{range .items}}{{$o := .metadata}}{{with .metadata.labels}}{{index . "podseidon.kubewharf.io/source-resource"}}.{{index . "podseidon.kubewharf.io/source-group"}}{{range $o.ownerReferences}} {{.apiVersion}}{{end}}{{"\n"}}{{end}}{{end}}' 2>/dev/null |
    while read -r kind owner; do
      echo "$kind"
      case "$owner" in ?*/*) echo "${kind%%.*}.${owner##*/}.${owner%%/*}" ;; esac
    done | grep -E '^[a-z0-9]+\.[a-z0-9.-]*$' | sed 's/\.$//' || true
}

# kind, namespace and name of the sources whose deletion waits for the finalizer, a line for each
held() {
  sources | sort -u | while read -r kind; do
    k get "$kind" --all-namespaces -o go-template='{{range .items}}{{$o := .metadata}}{{if .metadata.deletionTimestamp}}{{range .metadata.finalizers}}{{if eq . "'"$FINALIZER"'"}}'"$kind"' {{$o.namespace}} {{$o.name}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}' </dev/null 2>/dev/null || true
  done
}

if [ "$completes" = no ]; then
  waiting=$(held)
  if [ -n "$waiting" ]; then
    {
      echo "the deletion of these is held, and completes when their finalizer is off: they go, a workload with its pods"
      echo "$waiting" | sed 's/^/  /'
      echo "nothing was changed. To keep their pods, take the deletions back (docs/operations.md, Delete a workload)."
      echo "To let them go, run this again with --complete-deletions as the first argument."
    } >&2
    exit 1
  fi
fi

# Another cluster, its core, goes on counting the pods of a cluster without protectors of its own.
cell=""
if [ -z "$(k get customresourcedefinition podprotectors.podseidon.kubewharf.io -o name --ignore-not-found)" ]; then
  cell=$(k get configmap podseidon-cell --namespace "$NAMESPACE" -o 'jsonpath={.data.id}' 2>/dev/null || true)
fi
tell_what_is_left() {
  [ -z "$cell" ] || cat <<TEXT
left to do, where this cluster does not come back under the same id: its core still counts its pods. Run
  kubectl podseidon remove-cell $cell --all-namespaces --core-context CORE --yes
TEXT
}

# Deletions pass from here on. The controllers lose the permission to restore a webhook configuration or a finalizer. The
# second pass deletes what they restored before.
delete_webhook_configurations
delete_named clusterrolebindings
delete_webhook_configurations
for deployment in $(k get deployments --namespace "$NAMESPACE" -o name 2>/dev/null || true); do
  k delete --namespace "$NAMESPACE" "$deployment" --ignore-not-found
done

# Without an aggregator these pods would never become Ready.
gated | while read -r namespace name; do
  k patch pod "$name" --namespace "$namespace" --subresource=status --type=strategic --patch \
    '{"status":{"conditions":[{"type":"'"$GATE"'","status":"True"}]}}' </dev/null || true
done

for kind in $(sources | sort -u); do remove_finalizers "$kind"; done
remove_finalizers podprotectors.podseidon.kubewharf.io
# What takes longer is reported at the end: all else goes meanwhile.
late=""
k delete customresourcedefinition podprotectors.podseidon.kubewharf.io --ignore-not-found --timeout="$WAIT" ||
  late="the CRD podprotectors.podseidon.kubewharf.io"

# Leases, Secrets, the backups of protectors, the record of the webhook configurations, and the release register.
k delete namespace "$NAMESPACE" podseidon-update-trigger --ignore-not-found --timeout="$WAIT" ||
  late="${late:+$late, }a namespace of podseidon"
# An aggregator may have restored a webhook configuration before its pod ended: an apiserver learns late of a removed
# permission.
delete_webhook_configurations
# Where the cell is one namespace, the dummy pod is there. A core may serve no pods.
k delete pods --all-namespaces --selector app.kubernetes.io/part-of=podseidon \
  --field-selector metadata.name=podseidon-update-trigger >/dev/null || true
delete_named clusterroles priorityclasses flowschemas prioritylevelconfigurations \
  validatingadmissionpolicybindings validatingadmissionpolicies
for kind in rolebindings roles; do
  readable "$kind"
  k get "$kind" --all-namespaces -o go-template='{{range .items}}{{.metadata.namespace}} {{.metadata.name}}{{"\n"}}{{end}}' |
    grep -E ' podseidon-' | while read -r namespace name; do
    k delete "$kind" --namespace "$namespace" "$name" --ignore-not-found </dev/null
  done || true
done
if [ -n "$late" ]; then
  echo "not gone after $WAIT: $late. Its status.conditions say what it waits for; all else is gone. Run this again" >&2
  tell_what_is_left
  exit 1
fi
echo "podseidon is gone from this cluster"
tell_what_is_left
