/** The part of an aggregator that keeps copies of protectors in its cell (design 7): the shipping code on the links of its process. */
import type { Aggregator } from "../../../controllers/aggregator/aggregator.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import type { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { BackupKeeper } from "../../../shared/recovery/backup/backup-keeper.ts";
import type { RecoveryEvent } from "../../../shared/recovery/recovery-events.ts";
import { ReleaseRegister } from "../../../shared/recovery/register/release-register.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { OWN_NAMESPACE } from "../judge/admission-rows.ts";
import type { Coverage } from "../judge/coverage.ts";

export interface OutliveNodeOptions {
  readonly cell: string;
  readonly ports: Ports;
  readonly cellTransport: Transport;
  readonly cores: readonly {
    readonly name: string;
    readonly transport: Transport;
    readonly protectors: Reflector<PodProtector>;
  }[];
  readonly settleMs: number;
  readonly coverage: Coverage;
}

/** As `--restore-after` and `--copy-interval`; shorter than the defaults, so that more of it fits into a world. */
const HEAD_START_MS = 8_000;
const EVERY_MS = 2_000;
const TIMEOUT_MS = 10_000;

export function outliveOf(options: OutliveNodeOptions, aggregator: Aggregator): BackupKeeper {
  const { membership } = aggregator;
  const { cell, ports, cellTransport, settleMs, coverage } = options;
  const cores = options.cores.map(({ name, transport, protectors }) => ({
    name,
    api: new ApiClient(transport),
    protectors,
    releases: new ReleaseRegister({ core: name, transport, ports, namespace: OWN_NAMESPACE }),
  }));
  return new BackupKeeper({
    ...{ cellID: cell, ports, namespace: OWN_NAMESPACE, membership, cores, settleMs },
    ...{ headStartMs: HEAD_START_MS, everyMs: EVERY_MS, timeoutMs: TIMEOUT_MS },
    cellApi: new ApiClient(cellTransport),
    mayWrite: () => true,
    coreRestored: (core) => aggregator.coreRestored(core),
    onEvent: (event) => told(event, coverage),
  });
}

function told(event: RecoveryEvent, coverage: Coverage): void {
  coverage.rule(`copies: ${event.kind}`);
  if (event.kind === "copyFailed" && event.message.includes('"conflict"'))
    coverage.rule("copies: two leaders make the same chunk");
}
