/**
 * The enforcement that a label of a namespace states for its workloads and budgets. The annotation of a workload or
 * budget has precedence, and the generator's default comes last. Only namespaces with the label are watched.
 */
import * as v from "valibot";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { type ENFORCEMENT_ANNOTATION, ENFORCEMENT_LABEL } from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import { ENFORCEMENTS, type Enforcement, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import type { KindWatchOptions } from "./kind-watch.ts";

export interface NamespaceEnforcementOptions extends Pick<KindWatchOptions, "transport" | "ports" | "onWatch"> {
  /** Used where neither an object nor its namespace states an enforcement. */
  readonly byDefault: Enforcement;
  /** The default enforcement of the sources in a namespace may have changed. */
  readonly onChanged: (namespace: string) => void;
}

interface LabelledNamespace {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly enforcement: Enforcement | undefined;
  /** The label has an unknown word. */
  readonly isInvalid: boolean;
}

const INVALID = `the label ${ENFORCEMENT_LABEL} of its namespace must be Enforce, Warn or Off`;

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
      kind: "Namespace",
      query: { labelSelector: ENFORCEMENT_LABEL },
      parse: labelled,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      unparsable: "keepLast",
      onEvent: onWatch,
    });
    this.#watch.subscribe({
      changed(before, after) {
        const name = (after ?? before)?.name;
        const isSame = before?.enforcement === after?.enforcement && before?.isInvalid === after?.isInvalid;
        if (name !== undefined && !isSame) onChanged(name);
      },
    });
  }

  start(): void {
    this.#watch.start();
  }

  /** All labelled namespaces are listed. Before that, the default enforcement of an object is unknown. */
  get synced(): boolean {
    return this.#watch.synced;
  }

  whenSynced(signal: AbortSignal): Promise<unknown> {
    return this.#watch.whenSynced(signal);
  }

  /** The enforcement of objects in this namespace that state none. */
  of(namespace: string): Enforcement {
    return this.#watch.get(namespace)?.enforcement ?? this.#byDefault;
  }

  /** Why the namespace's label says nothing, for people. */
  whyInvalid(namespace: string): string | undefined {
    return this.#watch.get(namespace)?.isInvalid === true ? INVALID : undefined;
  }

  stop(): Promise<void> {
    return this.#watch.stop();
  }
}

/** The enforcement that an object states for itself, or a namespace for its objects. Unknown words are ignored. */
export function statedEnforcement(
  words: Readonly<Record<string, string>> | undefined,
  key: typeof ENFORCEMENT_ANNOTATION | typeof ENFORCEMENT_LABEL,
): Enforcement | undefined {
  return ENFORCEMENTS.find((known) => known === words?.[key]);
}

function labelled(raw: unknown): LabelledNamespace {
  const { name, uid, resourceVersion, labels } = parseObject(raw).metadata;
  const enforcement = statedEnforcement(labels, ENFORCEMENT_LABEL);
  return { name, uid, resourceVersion, enforcement, isInvalid: enforcement === undefined };
}
