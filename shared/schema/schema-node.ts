/**
 * The parts of a valibot schema or action that `check.ts` and `crd.ts` read. Every valibot schema is assignable to
 * this.
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
}

/** A schema without the actions that `v.pipe` added, and these actions, innermost first. */
export function unpipe(node: SchemaNode): { readonly base: SchemaNode; readonly actions: readonly SchemaNode[] } {
  const [first, ...rest] = node.pipe ?? [];
  if (first === undefined) return { base: node, actions: [] };
  const inner = unpipe(first);
  return { base: inner.base, actions: [...inner.actions, ...rest] };
}
