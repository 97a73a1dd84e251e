/** One generator process of a core: the shipping code on a simulated link, leading from its start to its death. */

import { Generator } from "../../../controllers/generator/generator.ts";
import type { GeneratorEvent } from "../../../controllers/generator/protectors/events.ts";
import { deploymentPlugin } from "../../../controllers/generator/sources/plugins/deployment.ts";
import { selection } from "../../../controllers/generator/sources/selection.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { PROTECT_LABEL } from "../../../shared/schema/annotations.ts";
import type { ProcessPorts } from "../../support/runtime/virtual-ports.ts";
import { OWN_NAMESPACE } from "../judge/admission-rows.ts";

export interface GeneratorNodeOptions {
  readonly ports: ProcessPorts;
  readonly transport: Transport;
  readonly onEvent: (event: GeneratorEvent) => void;
}

const WORKERS = 4;
const ignore = (): void => undefined;

export class GeneratorNode {
  readonly #options: GeneratorNodeOptions;
  readonly #generator: Generator;

  constructor(options: GeneratorNodeOptions) {
    this.#options = options;
    const { ports, transport, onEvent } = options;
    this.#generator = new Generator({
      ...{ ports, transport, election: undefined, concurrency: WORKERS, registerNamespace: OWN_NAMESPACE },
      plugins: [
        deploymentPlugin({ select: selection({ protectSelector: `${PROTECT_LABEL}=true` }), protectNonZero: true }),
      ],
      observer: { generator: onEvent, watch: ignore, queue: ignore, leader: ignore },
    });
    this.#generator.start();
  }

  /** As `kill -9`; what it has sent may still arrive. */
  kill(): void {
    this.#options.ports.kill();
    this.#options.transport.close();
    void this.#generator.stop().catch(ignore);
  }
}
