/** How protectors outlive their own loss, at the generator (design 7): what was lost while it looked on, and the register of releases. */
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { Informer } from "../../shared/kube/informer/informer.ts";
import { LastKnown } from "../../shared/recovery/last-known.ts";
import { OWN_NAMESPACE } from "../../shared/recovery/register/register-format.ts";
import { RegisterWriter } from "../../shared/recovery/register/register-writer.ts";
import { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { sourceOf } from "./protectors/protector.ts";
import type { GeneratorSetup } from "./setup.ts";
import { sourceKey } from "./sources/protection-source.ts";

const CALL_TIMEOUT_MS = 10_000;

export class GeneratorRecovery {
  readonly lost: LastKnown;
  readonly register: RegisterWriter;
  readonly #releases: ReleaseRegister;

  constructor(setup: GeneratorSetup, protectors: Pick<Informer<PodProtector>, "subscribe">, mayWrite: () => boolean) {
    const { transport, ports, observer, plugins } = setup;
    const namespace = setup.registerNamespace ?? OWN_NAMESPACE;
    const onEvent: ConstructorParameters<typeof ReleaseRegister>[0]["onEvent"] = (event) =>
      observer.watch("releases", event);
    this.#releases = new ReleaseRegister({ core: "core", transport, ports, namespace, onEvent });
    this.register = new RegisterWriter({
      api: new ApiClient(transport),
      ports,
      namespace,
      stored: this.#releases,
      timeoutMs: CALL_TIMEOUT_MS,
      mayWrite,
      onDropped: (segments) => observer.generator({ kind: "registerDropped", segments }),
    });
    this.lost = new LastKnown({
      watched: protectors,
      isRecorded: (uid) => this.#releases.has(uid),
      sourceOf: (protector) => {
        const source = sourceOf(protector, plugins);
        return source === undefined ? undefined : sourceKey(source);
      },
    });
  }

  /** Resolves when it is known what was released, or when `signal` aborts. */
  async start(signal: AbortSignal): Promise<void> {
    this.#releases.start();
    await this.#releases.whenKnown(signal);
  }

  async stop(): Promise<void> {
    await this.#releases.stop();
  }
}
