/** The parts of Quint's syntax tree, as `quint parse` writes it, that the specification uses. */
import * as v from "valibot";

interface Name {
  readonly kind: "name";
  readonly id: number;
  readonly name: string;
}

interface Literal {
  readonly kind: "int" | "str" | "bool";
  readonly id: number;
  readonly value: number | string | boolean;
}

export interface Application {
  readonly kind: "app";
  readonly id: number;
  readonly opcode: string;
  readonly args: readonly Expression[];
}

export interface Lambda {
  readonly kind: "lambda";
  readonly id: number;
  readonly params: readonly { readonly name: string }[];
  readonly expr: Expression;
}

interface Let {
  readonly kind: "let";
  readonly id: number;
  readonly opdef: Definition;
  readonly expr: Expression;
}

export type Expression = Name | Literal | Application | Lambda | Let;

export interface Definition {
  readonly kind: "def";
  readonly name: string;
  readonly qualifier: string;
  readonly expr: Expression;
  readonly doc?: string | undefined;
}

const nameSchema = v.object({ kind: v.literal("name"), id: v.number(), name: v.string() });
const literalSchema = v.object({
  kind: v.picklist(["int", "str", "bool"]),
  id: v.number(),
  value: v.union([v.number(), v.string(), v.boolean()]),
});

const expressionSchema: v.GenericSchema<unknown, Expression> = v.lazy(() =>
  v.variant("kind", [
    nameSchema,
    literalSchema,
    v.object({ kind: v.literal("app"), id: v.number(), opcode: v.string(), args: v.array(expressionSchema) }),
    v.object({
      kind: v.literal("lambda"),
      id: v.number(),
      params: v.array(v.object({ name: v.string() })),
      expr: expressionSchema,
    }),
    v.object({ kind: v.literal("let"), id: v.number(), opdef: definitionSchema, expr: expressionSchema }),
  ]),
);

const definitionSchema = v.object({
  kind: v.literal("def"),
  name: v.string(),
  qualifier: v.string(),
  expr: expressionSchema,
  doc: v.optional(v.string()),
});

const declarationSchema = v.variant("kind", [
  definitionSchema,
  v.object({ kind: v.literal("var"), name: v.string() }),
  v.object({ kind: v.literal("const"), name: v.string() }),
  v.object({ kind: v.literal("typedef"), name: v.string() }),
  v.object({
    kind: v.literal("instance"),
    protoName: v.string(),
    overrides: v.array(v.tuple([v.object({ name: v.string() }), expressionSchema])),
  }),
]);

const moduleSchema = v.object({ name: v.string(), declarations: v.array(declarationSchema) });

export type Module = v.InferOutput<typeof moduleSchema>;

/** What `quint parse --out` writes. */
export const parseResultSchema = v.object({ modules: v.array(moduleSchema) });
