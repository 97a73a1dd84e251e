import { KWOK_ANNOTATIONS, KWOK_PREFIX } from "./annotations.ts";
import { POD_STATE, type PodState, TERMINATION_TIME, TIMER_TIME } from "./pod-state.ts";
import {
  BECOME_READY,
  BECOME_UNREADY,
  GATES_MET,
  GATES_UNMET,
  LAPSE,
  START,
  SYNC,
  TERMINATED,
} from "./pod-templates.ts";

/** KWOK's configuration: the stages of pods and nodes, and how many run concurrently. */

const CONFIG_VERSION = "config.kwok.x-k8s.io/v1alpha1";
const STAGE_VERSION = "kwok.x-k8s.io/v1alpha1";
const POD_WORKERS = 16;
const NODE_WORKERS = 4;
/** Like the kubelet's. With node leases, the node lifecycle controller does not taint the nodes. */
const NODE_LEASE_SECONDS = 40;
const POD_CIDR = "10.244.0.0/16";
const TEN_YEARS_MS = 10 * 365 * 24 * 3_600_000;

type Step = Readonly<Record<string, unknown>>;
type Delay = Readonly<Record<string, unknown>>;

const patchStatus = (template: string): Step => ({
  patch: { subresource: "status", root: "status", type: "strategic", template },
});
const atTime = (expression: string): Delay => ({ durationFrom: { jq: { expression } } });

/** The stage of objects for which the jq expression `key` gives `state`. */
function stage(kind: "Pod" | "Node", key: string, state: string, steps: readonly Step[], delay?: Delay): unknown {
  return {
    apiVersion: STAGE_VERSION,
    kind: "Stage",
    metadata: { name: `${kind.toLowerCase()}-${state}` },
    spec: {
      resourceRef: { apiGroup: "v1", kind },
      selector: { matchExpressions: [{ jq: { key, operator: "In", values: [state] } }] },
      delay,
      steps,
    },
  };
}

const podStage = (state: PodState, steps: readonly Step[], delay?: Delay): unknown =>
  stage("Pod", POD_STATE, state, steps, delay);

const podStages: readonly unknown[] = [
  podStage("start", [patchStatus(START)]),
  podStage("become-ready", [patchStatus(BECOME_READY)], atTime(TIMER_TIME)),
  podStage("become-unready", [patchStatus(BECOME_UNREADY)]),
  podStage("lapse", [patchStatus(LAPSE)], atTime(TIMER_TIME)),
  podStage("gates-met", [patchStatus(GATES_MET)]),
  podStage("gates-unmet", [patchStatus(GATES_UNMET)]),
  podStage("sync", [patchStatus(SYNC)]),
  podStage("delete", [{ delete: true }]),
  podStage("terminate", [patchStatus(TERMINATED), { delete: true }], atTime(TERMINATION_TIME)),
  // Does nothing except for replacing a waiting stage that no longer applies.
  podStage("rest", [patchStatus("{}")], { durationMilliseconds: TEN_YEARS_MS }),
];

const NODE_CONDITIONS = `
conditions:
{{ range NodeConditions }}
{{ if ne .type "Ready" }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
{{ end }}
`;

function nodeReady(status: "True" | "False", reason: string): string {
  return `
- type: Ready
  status: "${status}"
  reason: ${reason}
  message: ""
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
`;
}

const NODE_RESOURCES = '{"cpu": "1k", "memory": "1Ti", "pods": "10k"}';
const NODE_TEMPLATE = `{{ $now := Now }}
phase: Running
addresses:
- type: InternalIP
  address: {{ NodeIP | Quote }}
- type: Hostname
  address: {{ NodeName | Quote }}
allocatable: {{ with .status.allocatable }}{{ toJson . }}{{ else }}${NODE_RESOURCES}{{ end }}
capacity: {{ with .status.capacity }}{{ toJson . }}{{ else }}${NODE_RESOURCES}{{ end }}
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: {{ printf "kwok://%s" Version }}
  kernelVersion: kwok
  kubeProxyVersion: ""
  kubeletVersion: {{ printf "kwok-%s" Version }}
  machineID: ""
  operatingSystem: linux
  osImage: kwok
  systemUUID: ""
`;

/** jq: whether the node has to become ready or unready, if either. */
const NODE_STATE = `
(first((.status.conditions // [])[] | select(.type == "Ready") | .status) // "Unknown") as $ready
| (.metadata.annotations["${KWOK_ANNOTATIONS.nodeNotReady}"] == "true") as $down
| if $down and $ready != "False" then "fail" elif ($down | not) and $ready != "True" then "recover" else "rest" end
`;

const nodeStage = (state: "fail" | "recover", template: string): unknown =>
  stage("Node", NODE_STATE, state, [patchStatus(template)]);

const nodeStages: readonly unknown[] = [
  nodeStage("recover", `${NODE_TEMPLATE}${NODE_CONDITIONS}${nodeReady("True", "KubeletReady")}`),
  nodeStage("fail", `${NODE_TEMPLATE}${NODE_CONDITIONS}${nodeReady("False", "KubeletNotReady")}`),
];

/** The whole `--config` file: documents of JSON, which is YAML. */
export function kwokConfiguration(): string {
  const options = {
    apiVersion: CONFIG_VERSION,
    kind: "KwokConfiguration",
    metadata: { name: KWOK_PREFIX },
    options: {
      cidr: POD_CIDR,
      manageAllNodes: true,
      nodeLeaseDurationSeconds: NODE_LEASE_SECONDS,
      nodeLeaseParallelism: NODE_WORKERS,
      nodePlayStageParallelism: NODE_WORKERS,
      podsOnNodeSyncParallelism: NODE_WORKERS,
      enablePodsOnNodeSyncListPager: true,
      podPlayStageParallelism: POD_WORKERS,
    },
  };
  return [options, ...podStages, ...nodeStages].map((document) => JSON.stringify(document)).join("\n---\n");
}
