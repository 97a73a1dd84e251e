import { KWOK_ANNOTATIONS as annotation, TIMER_CONDITION } from "./annotations.ts";

/**
 * Decides the state of a pod, and so the stage that applies. KWOK picks a stage at random when several match, and fires
 * an outdated stage when none does. A single expression with exactly one result excludes both.
 */
export type PodState =
  | ("start" | "become-ready" | "become-unready" | "lapse" | "gates-met" | "gates-unmet")
  | ("sync" | "delete" | "terminate" | "rest");

/** jq definitions shared by all expressions on pods. */
const POD_DEFINITIONS = `
def annotation($name): .metadata.annotations[$name] // "";
def conditions: .status.conditions // [];
def condition($type): conditions[] | select(.type == $type);
def status($type): first(condition($type).status) // "False";
def timer: first(condition("${TIMER_CONDITION}")) // null;
def gates_met:
  . as $pod | [.spec.readinessGates[]?.conditionType | . as $type | $pod | status($type)] | all(. == "True");
def seconds:
  [capture("(?<n>[0-9]+(\\\\.[0-9]+)?)(?<unit>ms|s|m|h)"; "g")
    | (.n | tonumber) * ({ms: 0.001, s: 1, m: 60, h: 3600}[.unit])] | add // 0;
def left_of_grace: (.metadata.deletionTimestamp | fromdate) - now;
`;

/** jq: the name of the state. */
export const POD_STATE = `${POD_DEFINITIONS}
def containers_ready: status("ContainersReady") == "True";
def held_unready: annotation("${annotation.unready}") == "true";
def resize_settled: status("PodResizePending") == "True" and annotation("${annotation.resize}") == "";
def ready_is_due:
  timer.reason == "ReadyAt" or (timer.reason == "Never" and annotation("${annotation.readyAfter}") != "never");
def terminating:
  if .metadata.deletionGracePeriodSeconds == 0 or annotation("${annotation.terminateAfter}") == "never" then "rest"
  elif annotation("${annotation.terminateAfter}") == "" then "delete"
  else "terminate" end;
def running:
  if (.metadata.generation // 0) != (.status.observedGeneration // 0) or resize_settled then "sync"
  elif containers_ready and held_unready then "become-unready"
  elif (containers_ready and gates_met) and status("Ready") != "True" then "gates-met"
  elif (containers_ready and gates_met | not) and status("Ready") == "True" then "gates-unmet"
  elif (containers_ready or held_unready | not) and ready_is_due then "become-ready"
  elif containers_ready and timer.reason == "UnreadyAt" then "lapse"
  else "rest" end;
if .metadata.deletionTimestamp != null then terminating
elif .status.phase == "Succeeded" or .status.phase == "Failed" then "rest"
elif timer == null then (if (.status.phase // "Pending") == "Pending" then "start" else "rest" end)
else running end
`;

/** jq: when the timer of the pod fires, an RFC 3339 time. */
export const TIMER_TIME = `${POD_DEFINITIONS} timer.message`;

/**
 * jq: how long a terminating pod's containers still take, a Go duration: the time asked for, within the grace period.
 */
export const TERMINATION_TIME = `${POD_DEFINITIONS}
[(annotation("${annotation.terminateAfter}") | seconds), left_of_grace] | min | if . < 0 then 0 else . end | "\\(.)s"
`;
