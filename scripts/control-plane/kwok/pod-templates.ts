import { KWOK_ANNOTATIONS as annotation, TIMER_CONDITION } from "./annotations.ts";

/**
 * The status of a pod that each stage writes: Go templates of YAML for a strategic merge patch, with the functions of
 * sprig and KWOK. Reasons and messages are the kubelet's (pkg/kubelet/status/generate.go).
 */

/** `$now`, `$annotations`, and the timer after which the containers that start now are ready. */
const PREAMBLE = `
{{ $pod := . }}
{{ $now := Now }}
{{ $annotations := or .metadata.annotations dict }}
{{ $readyAfter := get $annotations "${annotation.readyAfter}" | default "0s" }}
{{ $unready := eq (get $annotations "${annotation.unready}") "true" }}
{{ $startsReady := and (eq $readyAfter "0s") (not $unready) }}
`;

const OBSERVED = "observedGeneration: {{ or .metadata.generation 0 }}";

function condition(type: string, status: "True" | "False", reason = "", message = '""'): string {
  return `
- type: ${type}
  status: "${status}"
  reason: "${reason}"
  message: ${message}
  lastProbeTime: null
  lastTransitionTime: {{ $now | Quote }}
  observedGeneration: {{ or .metadata.generation 0 }}`;
}

const NOT_READY_MESSAGE =
  "'containers with unready status: [{{ range $index, $container := " +
  ".spec.containers }}{{ if $index }} {{ end }}{{ .name }}{{ end }}]'";
const GATES_MESSAGE =
  "'{{ range $index, $gate := .spec.readinessGates }}{{ if $index }}, {{ end }}the " +
  `status of pod readiness gate "{{ .conditionType }}" is not "True"{{ end }}'`;

const CONTAINERS_READY = condition("ContainersReady", "True");
const CONTAINERS_NOT_READY =
  condition("ContainersReady", "False", "ContainersNotReady", NOT_READY_MESSAGE) +
  condition("Ready", "False", "ContainersNotReady", NOT_READY_MESSAGE);
const READY = condition("Ready", "True");
const GATES_NOT_READY = condition("Ready", "False", "ReadinessGatesNotReady", GATES_MESSAGE);

/** Ready together with the containers; for readiness gates, another stage decides in the next round. */
const READY_WITHOUT_GATES = `${CONTAINERS_READY}
{{ if .spec.readinessGates }}${GATES_NOT_READY}{{ else }}${READY}{{ end }}`;

function timer(reason: string, time: string): string {
  return condition(TIMER_CONDITION, "True", reason, time);
}

const fromNow = (duration: string): string =>
  `{{ dateInZone "2006-01-02T15:04:05.000Z07:00" (now | mustDateModify (printf "+%s" ${duration})) "UTC" | Quote }}`;

const NO_TIMER = timer("None", '""');
const READY_TIMER = `
{{ if eq $readyAfter "never" }}${timer("Never", '""')}{{ else }}${timer("ReadyAt", fromNow("$readyAfter"))}{{ end }}`;
const LAPSE_TIMER = `
{{ $unreadyAfter := get $annotations "${annotation.unreadyAfter}" }}
{{ if $unreadyAfter }}${timer("UnreadyAt", fromNow("$unreadyAfter"))}{{ else }}${NO_TIMER}{{ end }}`;

const startedContainer = (ready: string): string => `
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  containerID: {{ printf "kwok://%s/%s" $pod.metadata.uid .name | Quote }}
  ready: ${ready}
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
  {{ with .resources }}
  resources: {{ toJson . }}
  {{ with .requests }}
  allocatedResources: {{ toJson . }}
  {{ end }}
  {{ end }}
{{ end }}`;

export const START = `${PREAMBLE}
${OBSERVED}
phase: Running
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ $host := or .spec.hostNetwork false }}
{{ $uid := or .metadata.uid "" }}
{{ $ip := PodIPWith .spec.nodeName $host $uid (or .metadata.name "") (or .metadata.namespace "") }}
podIP: {{ $ip | Quote }}
podIPs:
- ip: {{ $ip | Quote }}
conditions:
${condition("PodReadyToStartContainers", "True")}
${condition("Initialized", "True")}
{{ if $startsReady }}
${READY_WITHOUT_GATES}
${LAPSE_TIMER}
{{ else }}
${CONTAINERS_NOT_READY}
${READY_TIMER}
{{ end }}
{{ with .spec.initContainers }}
initContainerStatuses:
{{ range . }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
{{ end }}
containerStatuses:
${startedContainer("{{ $startsReady }}")}
`;

/**
 * Writes the whole list from the pod that KWOK last saw, together with this pod's generation, so that a sync in between
 * is repeated instead of lost.
 */
const containersTurn = (ready: boolean): string => `
{{ with .status.observedGeneration }}
observedGeneration: {{ . }}
{{ end }}
containerStatuses:
{{ range .status.containerStatuses }}
- {{ toJson (set . "ready" ${ready}) }}
{{ end }}`;

export const BECOME_READY = `${PREAMBLE}
conditions:
${READY_WITHOUT_GATES}
${LAPSE_TIMER}
${containersTurn(true)}
`;

/** By annotation: ready again as soon as the annotation is removed. */
export const BECOME_UNREADY = `${PREAMBLE}
conditions:
${CONTAINERS_NOT_READY}
${timer("ReadyAt", "{{ $now | Quote }}")}
${containersTurn(false)}
`;

/** By time. */
export const LAPSE = `${PREAMBLE}
{{ $unreadyFor := get $annotations "${annotation.unreadyFor}" }}
conditions:
${CONTAINERS_NOT_READY}
{{ if $unreadyFor }}${timer("ReadyAt", fromNow("$unreadyFor"))}{{ else }}${NO_TIMER}{{ end }}
${containersTurn(false)}
`;

export const GATES_MET = `${PREAMBLE}
conditions:
${READY}
`;

export const GATES_UNMET = `${PREAMBLE}
conditions:
{{ $containersReady := false }}
{{ range .status.conditions }}
{{ if and (eq .type "ContainersReady") (eq .status "True") }}{{ $containersReady = true }}{{ end }}
{{ end }}
{{ if $containersReady }}
${GATES_NOT_READY}
{{ else }}
${condition("Ready", "False", "ContainersNotReady", NOT_READY_MESSAGE)}
{{ end }}
`;

/**
 * For a changed spec. A container with another image restarts. A container with other resources restarts if its resize
 * policy says so, and the resize is done, deferred or found infeasible. A restarted container is unready until its time
 * to become ready has passed.
 */
export const SYNC = `${PREAMBLE}
{{ $refused := get $annotations "${annotation.resize}" }}
{{ $restarts := false }}
{{ $resizes := false }}
${OBSERVED}
containerStatuses:
{{ range .spec.containers }}
{{ $container := . }}
{{ $policies := or .resizePolicy list }}
{{ $wanted := or .resources dict }}
{{ range $pod.status.containerStatuses }}{{ if eq .name $container.name }}
{{ $has := or .resources dict }}
{{ $next := . }}
{{ $restart := ne .image $container.image }}
{{ if ne (toJson $has) (toJson $wanted) }}
{{ $resizes = true }}
{{ if not $refused }}
{{ $next = set $next "resources" $wanted }}
{{ if $wanted.requests }}{{ $next = set $next "allocatedResources" $wanted.requests }}{{ end }}
{{ range $policies }}
{{ if eq .restartPolicy "RestartContainer" }}
{{ $name := .resourceName }}
{{ $before := printf "%v %v" (get (or $has.requests dict) $name) (get (or $has.limits dict) $name) }}
{{ $after := printf "%v %v" (get (or $wanted.requests dict) $name) (get (or $wanted.limits dict) $name) }}
{{ if ne $before $after }}{{ $restart = true }}{{ end }}
{{ end }}
{{ end }}
{{ end }}
{{ end }}
{{ if $restart }}
{{ $restarts = true }}
{{ $next = set $next "image" $container.image }}
{{ $next = set $next "imageID" $container.image }}
{{ $next = set $next "ready" false }}
{{ $next = set $next "restartCount" (add1 .restartCount) }}
{{ $next = set $next "containerID" (printf "kwok://%s/%s/%d" $pod.metadata.uid .name .restartCount) }}
{{ $next = set $next "state" (dict "running" (dict "startedAt" $now)) }}
{{ end }}
- {{ toJson $next }}
{{ end }}{{ end }}
{{ end }}
conditions:
{{ if and $resizes $refused }}
- type: PodResizePending
  status: "True"
  reason: {{ $refused | Quote }}
  message: ""
  lastTransitionTime: {{ $now | Quote }}
  observedGeneration: {{ .metadata.generation }}
{{ else }}
- type: PodResizePending
  $patch: delete
{{ end }}
{{ if $restarts }}
${CONTAINERS_NOT_READY}
${READY_TIMER}
{{ end }}
`;

/** What a kubelet reports before it removes a terminated pod. */
export const TERMINATED = `${PREAMBLE}
phase: Succeeded
conditions:
${condition("ContainersReady", "False", "PodCompleted")}
${condition("Ready", "False", "PodCompleted")}
containerStatuses:
{{ range .status.containerStatuses }}
{{ $started := $now }}
{{ with .state.running }}{{ $started = .startedAt }}{{ end }}
{{ $state := dict "terminated" (dict "exitCode" 0 "reason" "Completed" "startedAt" $started "finishedAt" $now) }}
- {{ toJson (set (set (set . "ready" false) "started" false) "state" $state) }}
{{ end }}
`;
