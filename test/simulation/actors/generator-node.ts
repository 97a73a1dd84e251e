/** One generator process of a core: the shipping code on a simulated link. It leads from its start to its death. */

import { Generator } from "../../../controllers/generator/generator.ts";
import type { GeneratorEvent } from "../../../controllers/generator/protectors/events.ts";
import { plugins } from "../../../controllers/generator/sources/plugins.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { PROTECT_LABEL } from "../../../shared/schema/annotations.ts";
import type { ProcessPorts } from "../../support/runtime/virtual-ports.ts";
import { OWN_NAMESPACE } from "../scenario/scenario.ts";

interface GeneratorNodeOptions {
  readonly ports: ProcessPorts;
  readonly transport: Transport;
  readonly onEvent: (event: GeneratorEvent) => void;
}

const WORKERS = 4;
const ignore = (): void => undefined;

export class GeneratorNode {
  readonly #options: GeneratorNodeOptions;
  readonly #stopping = new AbortController();
  readonly #work: Promise<void>;

  constructor(options: GeneratorNodeOptions) {
    this.#options = options;
    const { ports, transport, onEvent } = options;
    const generator = new Generator({
      ...{ ports, transport, concurrency: WORKERS, registerNamespace: OWN_NAMESPACE, mayWrite: () => true },
      plugins: plugins({ protectSelector: `${PROTECT_LABEL}=true`, protectNonZero: true, kinds: ["deployment"] }),
      observer: { generator: onEvent, watch: ignore, queue: ignore },
    });
    this.#work = generator.lead(this.#stopping.signal);
  }

  /** As `kill -9`. Requests that the process has sent may still arrive. */
  kill(): void {
    this.#options.ports.kill();
    this.#options.transport.close();
    this.#stopping.abort();
    void this.#work.catch(ignore);
  }
}
