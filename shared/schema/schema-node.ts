/** What of the CRD valibot has no word for, attached to a schema as metadata and read by `crd.ts`. */
export interface ApiHints {
  readonly description?: string;
  readonly format?: string;
  readonly pattern?: string;
  readonly enum?: readonly string[];
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly listType?: "atomic" | "set" | "map";
  readonly listMapKeys?: readonly string[];
  readonly mapType?: "atomic";
  readonly rules?: readonly CelRule[];
}

/** One of `x-kubernetes-validations`. */
export interface CelRule {
  readonly rule: string;
  readonly message: string;
  readonly fieldPath?: string;
}

/**
 * The parts of a valibot schema or action that the project's own walkers read (`check.ts`, `crd.ts`). Every valibot schema is
 * assignable to this.
 */
export interface SchemaNode {
  readonly type: string;
  readonly pipe?: readonly SchemaNode[];
  readonly entries?: Readonly<Record<string, SchemaNode>>;
  readonly item?: SchemaNode;
  readonly value?: SchemaNode;
  readonly wrapped?: SchemaNode;
  readonly options?: readonly unknown[];
  readonly requirement?: unknown;
  readonly metadata?: ApiHints;
}

/** A schema without the actions that `v.pipe` put behind it, and these actions, the innermost first. */
export function unpipe(node: SchemaNode): { readonly base: SchemaNode; readonly actions: readonly SchemaNode[] } {
  const [first, ...rest] = node.pipe ?? [];
  if (first === undefined) return { base: node, actions: [] };
  const inner = unpipe(first);
  return { base: inner.base, actions: [...inner.actions, ...rest] };
}
