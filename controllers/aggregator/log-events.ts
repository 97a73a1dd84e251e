/** The aggregator's events as log lines: what somebody has to know is a warning, what only explains is debug. */

import type { Log } from "../../shared/observe/log.ts";
import type { AggregatorEvent, EventSink } from "./events.ts";

export function eventLog(log: Log): EventSink {
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
        if (event.failure === "conflict")
          log.debug({ ...event.id, message: event.message }, "Another writer was faster");
        else if (event.failure === "gone") log.debug({ ...event.id }, "The protector is gone");
        else
          log.warn({ ...event.id, failure: event.failure, message: event.message }, "The status could not be written");
        return;
      case "voided":
        log.info(
          { ...event.id, podName: event.podName, result: event.result },
          "A reservation that was not used is voided",
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
