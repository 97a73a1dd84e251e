/** The aggregator's events as log lines: what somebody has to know is a warning, what only explains is debug. */

import type { Log } from "../../shared/observe/log.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import type { AggregatorEvent, EventSink } from "./events.ts";

/** An outage of a core fails the writes of all its protectors: one line in this time says so. */
const FAILURE_EVERY_MS = 10_000;

export function eventLog(log: Log, clock: Clock): EventSink {
  const failures = new Map<string, { readonly sinceMs: number; more: number }>();
  /** How many lines were kept back since the last one of this kind; undefined when this one is kept back, too. */
  const keptBack = (kind: string): number | undefined => {
    const last = failures.get(kind);
    if (last !== undefined && clock.monotonicMs() - last.sinceMs < FAILURE_EVERY_MS) {
      last.more++;
      return undefined;
    }
    failures.set(kind, { sinceMs: clock.monotonicMs(), more: 0 });
    return last?.more ?? 0;
  };
  return (event: AggregatorEvent): void => {
    switch (event.kind) {
      case "held":
        log.warn(
          { ...event.id, reason: event.reason, epoch: event.epoch },
          "Admission history may be lost, the cell is on hold",
        );
        return;
      case "released":
        log.info({ ...event.id, heldMs: event.heldMs }, "The cell is no longer on hold");
        return;
      case "fieldsDropped":
        log.error(
          { core: event.core, fields: event.fields },
          "The CRD of the core drops fields; accounting falls back to upstream's clock rule until the CRD is upgraded",
        );
        return;
      case "cellRestored":
        log.warn({ how: event.how, from: event.from, to: event.to }, "The cell was restored to an older state");
        return;
      case "corruptHistory":
        log.error(
          { ...event.id, buckets: event.buckets },
          "Packed admission history cannot be read; its sum still counts",
        );
        return;
      case "badSelector":
        log.error({ ...event.id, problems: event.problems }, "The selector cannot be read; no pod is counted");
        return;
      case "writeFailed":
        logFailure(log, event, keptBack);
        return;
      case "voided":
        log.info(
          { ...event.id, podName: event.podName, result: event.result },
          "A reservation that was not used is voided",
        );
        return;
      case "gateFailed": {
        const more = keptBack("gate");
        const { podName, message } = event;
        if (more !== undefined) log.warn({ podName, message, more }, "A pod's counted gate could not be opened");
        return;
      }
      case "gateOpened":
        logGate(log, event, keptBack);
        return;
      case "deferred":
        log.info(
          { ...event.id, podName: event.podName },
          "A resize is deferred by the kubelet; its quota stays reserved until it is done",
        );
        return;
      case "refused":
        log.debug({ ...event.id, reason: event.refusal }, "The snapshot is older than what is stored");
        return;
      case "wrote":
        log.debug({ ...event.id, cause: event.cause, durationMs: event.durationMs }, "Wrote a status");
        return;
      case "dropped":
        log.debug({ ...event.id, operation: event.operation, rule: event.rule }, "Settled a reservation");
        return;
      default:
        return;
    }
  };
}

function logGate(
  log: Log,
  { podName, reason, waitedMs }: Extract<AggregatorEvent, { kind: "gateOpened" }>,
  keptBack: (kind: string) => number | undefined,
): void {
  if (reason !== "Overdue") {
    log.debug({ podName, reason, waitedMs }, "A pod's counted gate was opened");
    return;
  }
  const more = keptBack("overdue");
  if (more !== undefined) {
    log.warn(
      { podName, waitedMs, more },
      "A pod's counted gate was opened though its count could not be stored in time",
    );
  }
}

function logFailure(
  log: Log,
  { id, failure, message }: Extract<AggregatorEvent, { kind: "writeFailed" }>,
  keptBack: (kind: string) => number | undefined,
): void {
  if (failure === "conflict") log.debug({ ...id, message }, "Another writer was faster");
  else if (failure === "gone") log.debug({ ...id }, "The protector is gone");
  else {
    const more = keptBack(`${id.core}/${failure}`);
    if (more !== undefined) log.warn({ ...id, failure, message, more }, "The status could not be written");
  }
}
