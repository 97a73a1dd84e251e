/**
 * Lost protectors at the webhook (docs/design.md#lost-protectors): follows the release register of each core, and reads
 * the backups of the cells at the start. Loaded once the port is open.
 */
import type { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import type { Transport } from "../shared/kube/client/transport.ts";
import type { Reflector } from "../shared/kube/informer/reflector.ts";
import { BackupReader } from "../shared/recovery/backup/backup-reader.ts";
import { askIfBehind } from "../shared/recovery/backup/core-lag.ts";
import { ReleaseRegister } from "../shared/recovery/register/release-register.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import type { PodProtector } from "../shared/schema/podprotector.ts";
import type { WebhookEvent } from "./observe.ts";
import type { ProtectorCache } from "./reserve/protector-cache.ts";

interface RecoveryOptions {
  readonly cores: readonly { readonly name: string; readonly transport: Transport }[];
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  readonly ports: Ports;
  readonly ownNamespace: string;
  readonly onEvent: (event: WebhookEvent) => void;
}

export interface WatchedCore {
  readonly watch: Reflector<ProtectorVersion>;
  readonly cache: ProtectorCache;
}

export class WebhookRecovery {
  readonly #registers = new Map<string, ReleaseRegister>();
  readonly #backups: BackupReader;

  constructor(
    { ports, ownNamespace: namespace, cores, cells, onEvent }: RecoveryOptions,
    watched: readonly WatchedCore[],
  ) {
    const find = (core: string): WatchedCore | undefined => watched.find(({ cache }) => cache.name === core);
    for (const { name: core, transport } of cores) {
      const register = new ReleaseRegister({
        ...{ core, transport, ports, namespace },
        onReleased: () => find(core)?.cache.dropReleased(),
        onEvent: (event) => {
          if (event.kind === "failed") onEvent({ ...event, kind: "registerFailed", core });
        },
      });
      this.#registers.set(core, register);
    }
    this.#backups = new BackupReader({
      ...{ ports, cells, namespace },
      cores: watched.map(({ cache }) => cache),
      whenKnown: async (core, versions, signal) => {
        const watch = find(core)?.watch;
        await Promise.all([watch?.whenSynced(signal), this.#registers.get(core)?.whenKnown(signal)]);
        if (watch !== undefined) await askIfBehind(watch, versions, ports, signal);
      },
      onRead: (cell, result, detail) => onEvent({ kind: "backupRead", cell, result, detail }),
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

  hasEnded(core: string, protector: Pick<PodProtector, "metadata">): boolean {
    return this.#registers.get(core)?.hasEnded(protector) ?? false;
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
