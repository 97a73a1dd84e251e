/**
 * Lost protectors at the webhook (docs/design.md#lost-protectors): follows the release register of each core, and reads the backups of the
 * cells at the start. Loaded once the port is open.
 */
import type { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import type { Transport } from "../shared/kube/client/transport.ts";
import type { Reflector } from "../shared/kube/informer/reflector.ts";
import { BackupReader } from "../shared/recovery/backup/backup-reader.ts";
import { ReleaseRegister } from "../shared/recovery/register/release-register.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import type { PodProtector } from "../shared/schema/podprotector.ts";
import type { Observers } from "./observers.ts";
import type { ProtectorCache } from "./reserve/protector-cache.ts";

export interface RecoveryOptions extends Observers {
  readonly cores: readonly { readonly name: string; readonly transport: Transport }[];
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  readonly ports: Ports;
  readonly ownNamespace: string;
}

interface RecoveredCore {
  readonly watch: Reflector<ProtectorVersion>;
  readonly cache: ProtectorCache;
}

export class WebhookRecovery {
  readonly #registers = new Map<string, ReleaseRegister>();
  readonly #backups: BackupReader;

  constructor(
    { ports, ownNamespace: namespace, cores, cells, log, metrics }: RecoveryOptions,
    watched: readonly RecoveredCore[],
  ) {
    const find = (core: string): RecoveredCore | undefined => watched.find(({ cache }) => cache.name === core);
    for (const { name: core, transport } of cores) {
      const onReleased = (): void => find(core)?.cache.dropReleased();
      const onEvent: ConstructorParameters<typeof ReleaseRegister>[0]["onEvent"] = (event) => {
        if (event.kind !== "failed") return;
        metrics.registerFailed(core);
        log.warn({ core, ...event }, "The register of released protectors cannot be followed");
      };
      this.#registers.set(core, new ReleaseRegister({ core, transport, ports, namespace, onReleased, onEvent }));
    }
    this.#backups = new BackupReader({
      ...{ ports, cells, namespace },
      cores: watched.map(({ cache }) => cache),
      whenKnown: async (core, signal) => {
        await Promise.all([find(core)?.watch.whenSynced(signal), this.#registers.get(core)?.whenKnown(signal)]);
      },
      onRead: (cell, result, detail) => {
        metrics.backupRead(cell, result);
        if (result === "read") log.info({ cell, detail }, "The copies of protectors in a cell were read");
        else log.error({ cell, detail }, "The copies of protectors in a cell cannot be read");
      },
    });
  }

  start(): void {
    for (const register of this.#registers.values()) register.start();
    this.#backups.start();
  }

  async stop(): Promise<void> {
    this.#backups.stop();
    await Promise.all([...this.#registers.values()].map((register) => register.stop()));
  }

  isReleased(core: string, uid: string): boolean {
    return this.#registers.get(core)?.has(uid) ?? false;
  }

  inForce(core: string, protector: Pick<PodProtector, "metadata">): void {
    this.#registers.get(core)?.inForce(protector);
  }

  problemOf(cell: string): string | undefined {
    return this.#backups.problemOf(cell);
  }

  problems(): string[] {
    return this.#backups.problems();
  }
}
