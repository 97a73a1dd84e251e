/**
 * How protectors outlive their own loss, at the webhook (design 7): the register of releases is followed in each core, and the copies in the
 * cells are read at the start. Loaded once the port is open.
 */

import type { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import type { Reflector } from "../shared/kube/informer/reflector.ts";
import { BackupReader } from "../shared/recovery/backup/backup-reader.ts";
import { ReleaseRegister } from "../shared/recovery/register/release-register.ts";
import type { PodProtector } from "../shared/schema/podprotector.ts";
import type { WebhookParts } from "./parts.ts";
import type { ProtectorCache } from "./reserve/protector-cache.ts";

export class WebhookRecovery {
  readonly #registers = new Map<string, ReleaseRegister>();
  readonly #copies: BackupReader;

  constructor(
    parts: WebhookParts,
    cores: readonly ProtectorCache[],
    watches: ReadonlyMap<string, Reflector<ProtectorVersion>>,
  ) {
    const { ports, ownNamespace, cells, log, metrics } = parts;
    for (const { name, transport } of parts.cores) {
      const onEvent: ConstructorParameters<typeof ReleaseRegister>[0]["onEvent"] = (event) => {
        if (event.kind !== "failed") return;
        metrics.registerFailed(name);
        log.warn({ core: name, ...event }, "The register of released protectors cannot be followed");
      };
      const onReleased = (): void => cores.find((core) => core.name === name)?.released();
      this.#registers.set(
        name,
        new ReleaseRegister({ core: name, transport, ports, namespace: ownNamespace, onReleased, onEvent }),
      );
    }
    this.#copies = new BackupReader({
      ports,
      cells,
      namespace: ownNamespace,
      cores,
      whenKnown: async (core, signal) => {
        await Promise.all([watches.get(core)?.whenSynced(signal), this.#registers.get(core)?.whenKnown(signal)]);
      },
      onRead: (cell, result, detail) => {
        metrics.copiesRead(cell, result);
        if (result === "read") log.info({ cell, detail }, "The copies of protectors in a cell were read");
        else log.error({ cell, detail }, "The copies of protectors in a cell cannot be read");
      },
    });
  }

  start(): void {
    for (const register of this.#registers.values()) register.start();
    this.#copies.start();
  }

  async stop(): Promise<void> {
    this.#copies.stop();
    await Promise.all([...this.#registers.values()].map((register) => register.stop()));
  }

  isReleased(core: string, uid: string): boolean {
    return this.#registers.get(core)?.has(uid) ?? false;
  }

  inForce(core: string, protector: Pick<PodProtector, "metadata">): void {
    this.#registers.get(core)?.inForce(protector);
  }

  problemOf(cell: string): string | undefined {
    return this.#copies.problemOf(cell);
  }

  problems(): string[] {
    return this.#copies.problems();
  }
}
