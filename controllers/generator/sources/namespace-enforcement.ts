/**
 * The enforcement that namespaces state for their workloads and budgets, by a label: it comes before the generator's
 * default, and after the annotation of a workload or budget. Only namespaces with the label are watched.
 */
import * as v from "valibot";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { type ENFORCEMENT_ANNOTATION, ENFORCEMENT_LABEL } from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import { ENFORCEMENTS, type Enforcement, ObjectMeta } from "../../../shared/schema/podprotector.ts";

export interface NamespaceEnforcementOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  /** Where neither an object nor its namespace states one. */
  readonly byDefault: Enforcement;
  readonly onWatch: (event: ReflectorEvent) => void;
  /** What the sources of a namespace have by default may be another now. */
  readonly onChanged: (namespace: string) => void;
}

interface LabelledNamespace {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly enforcement: Enforcement | undefined;
}

const parseObject = checker(v.looseObject({ metadata: ObjectMeta }));

export class NamespaceEnforcement {
  readonly #watch: Reflector<LabelledNamespace>;
  readonly #byDefault: Enforcement;

  constructor({ transport, ports, byDefault, onWatch, onChanged }: NamespaceEnforcementOptions) {
    this.#byDefault = byDefault;
    this.#watch = new Reflector<LabelledNamespace>({
      name: "namespaces",
      transport,
      ports,
      path: "/api/v1/namespaces",
      query: { labelSelector: ENFORCEMENT_LABEL },
      parse: labelled,
      keyOf: ({ name }) => name,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      unparsable: "keepLast",
      onEvent: onWatch,
    });
    this.#watch.subscribe({
      changed(before, after) {
        const name = (after ?? before)?.name;
        if (name !== undefined && before?.enforcement !== after?.enforcement) onChanged(name);
      },
    });
  }

  start(): void {
    this.#watch.start();
  }

  /** All labelled namespaces are listed: before that, nobody knows what an object has by default. */
  get synced(): boolean {
    return this.#watch.synced;
  }

  whenSynced(signal: AbortSignal): Promise<unknown> {
    return this.#watch.whenSynced(signal);
  }

  /** Of an object of this namespace that states none itself. */
  of(namespace: string): Enforcement {
    return this.#watch.get(namespace)?.enforcement ?? this.#byDefault;
  }

  stop(): Promise<void> {
    return this.#watch.stop();
  }
}

/** What an object states of itself, or a namespace of its objects. A word that is none of the three says nothing. */
export function statedEnforcement(
  words: Readonly<Record<string, string>> | undefined,
  key: typeof ENFORCEMENT_ANNOTATION | typeof ENFORCEMENT_LABEL,
): Enforcement | undefined {
  return ENFORCEMENTS.find((known) => known === words?.[key]);
}

function labelled(raw: unknown): LabelledNamespace {
  const { name, uid, resourceVersion, labels } = parseObject(raw).metadata;
  return { name, uid, resourceVersion, enforcement: statedEnforcement(labels, ENFORCEMENT_LABEL) };
}
