/**
 * Evaluates expressions of the specification. Each binder (a parameter, a lambda's parameter, a `val`) has one cell for
 * its value: Quint has no recursion, so no binder is in use twice at a time. A `val` is evaluated when it is first
 * needed.
 */
import { isTrue, OPERATORS } from "./operators.ts";
import type { Application, Definition, Expression, Lambda, Module } from "./syntax.ts";
import { elementsOf, entriesOf, type Value, Values } from "./values.ts";

export type Evaluate = () => Value;
type LambdaOperator = (application: Application, scope: Scope) => Evaluate;

export interface Binding {
  value: Value | undefined;
}
export type Scope = ReadonlyMap<string, Evaluate>;

/** An operator of the specification with parameters: its cells, its body. */
export interface BoundOperator {
  readonly params: readonly Binding[];
  readonly body: Expression;
  readonly scope: Scope;
}

/** Results that one operator remembers. States repeat the same parts over and over. */
const MEMO_LIMIT = 200_000;
/** Calls after which an operator that mostly meets new arguments remembers nothing more. */
const PROBATION = 2_000;
/** Expressions that cost less than looking a result up. */
const SMALL = 12;

export class Evaluator {
  readonly values = new Values();
  readonly #definitions = new Map<string, Definition>();
  readonly #operations = new Map<string, BoundOperator>();
  readonly #calls = new Map<string, (args: readonly Value[]) => Value>();
  /** Constants, variables, and nullary definitions. */
  readonly #globals = new Map<string, Evaluate>();
  readonly variables = new Map<string, Binding>();

  /** The module with constants, and the instance of it that says their values. */
  constructor(protocol: Module, overrides: readonly (readonly [string, Expression])[]) {
    for (const declaration of protocol.declarations) {
      if (declaration.kind === "def") this.#definitions.set(declaration.name, declaration);
      if (declaration.kind !== "var") continue;
      const binding: Binding = { value: undefined };
      this.variables.set(declaration.name, binding);
      this.#globals.set(declaration.name, () => boundValue(binding, declaration.name));
    }
    for (const [name, expression] of overrides) this.#globals.set(name, once(this.compile(expression, new Map())));
  }

  definition(name: string): Definition | undefined {
    return this.#definitions.get(name);
  }

  /** An operator with parameters. */
  operation(name: string): BoundOperator | undefined {
    const known = this.#operations.get(name);
    const expression = this.#definitions.get(name)?.expr;
    if (known !== undefined || expression?.kind !== "lambda") return known;
    const operation = bind(expression, new Map());
    this.#operations.set(name, operation);
    return operation;
  }

  compile(expression: Expression, scope: Scope): Evaluate {
    switch (expression.kind) {
      case "int":
      case "str":
      case "bool": {
        const { value } = expression;
        return () => value;
      }
      case "name":
        return scope.get(expression.name) ?? this.#global(expression.name);
      case "let": {
        const { binding, inner } = this.lazily(expression.opdef, scope);
        const body = this.compile(expression.expr, inner);
        return () => {
          binding.value = undefined;
          return body();
        };
      }
      case "app":
        return this.#application(expression, scope);
      case "lambda":
        throw new Error("a lambda is an argument of a built-in operator only");
    }
  }

  /** The scope in which a `val` is known. Its binding is emptied when its expression is entered. */
  lazily({ name, expr }: Definition, scope: Scope): { readonly binding: Binding; readonly inner: Scope } {
    const binding: Binding = { value: undefined };
    const value = this.compile(expr, scope);
    return { binding, inner: new Map(scope).set(name, () => (binding.value ??= value())) };
  }

  #global(name: string): Evaluate {
    const known = this.#globals.get(name);
    if (known !== undefined) return known;
    const definition = this.#definitions.get(name);
    if (definition === undefined) throw new Error(`unknown name ${name}`);
    const value = this.compile(definition.expr, new Map());
    const global = definition.qualifier.startsWith("pure") ? once(value) : value;
    this.#globals.set(name, global);
    return global;
  }

  #application(application: Application, scope: Scope): Evaluate {
    const { opcode } = application;
    const withLambda = this.#lambdaOperators[opcode];
    if (withLambda !== undefined) return withLambda(application, scope);
    const args = application.args.map((arg) => this.compile(arg, scope));
    const [first, second, third] = args;
    if (opcode === "and") return () => args.every((arg) => isTrue(arg()));
    if (opcode === "or") return () => args.some((arg) => isTrue(arg()));
    if (first !== undefined && second !== undefined) {
      if (opcode === "implies") return () => !isTrue(first()) || isTrue(second());
      if (opcode === "ite" && third !== undefined) return () => (isTrue(first()) ? second() : third());
    }
    const operator = OPERATORS[opcode];
    if (operator !== undefined) return applied(args, (values) => operator(values, this.values));
    return applied(args, this.#call(opcode));
  }

  /** A pure operator of some size remembers its results. */
  #call(name: string): (args: readonly Value[]) => Value {
    const known = this.#calls.get(name);
    if (known !== undefined) return known;
    const operation = this.operation(name);
    if (operation === undefined) throw new Error(`unknown operator ${name}`);
    const body = this.compile(operation.body, operation.scope);
    const run = (args: readonly Value[]): Value => {
      operation.params.forEach((param, at) => {
        param.value = args[at];
      });
      return body();
    };
    const isPure = this.#definitions.get(name)?.qualifier === "puredef";
    const call = isPure && sizeOf(operation.body) > SMALL ? remembering(run) : run;
    this.#calls.set(name, call);
    return call;
  }

  readonly #lambdaOperators: Readonly<Record<string, LambdaOperator>> = {
    exists: (application, scope) => {
      const { set, run } = this.#overSet(application, scope);
      return () => elementsOf(set()).some((element) => isTrue(run(element)));
    },
    forall: (application, scope) => {
      const { set, run } = this.#overSet(application, scope);
      return () => elementsOf(set()).every((element) => isTrue(run(element)));
    },
    map: (application, scope) => {
      const { set, run } = this.#overSet(application, scope);
      return () => this.values.set(elementsOf(set()).map((element) => run(element)));
    },
    filter: (application, scope) => {
      const { set, run } = this.#overSet(application, scope);
      return () => this.values.set(elementsOf(set()).filter((element) => isTrue(run(element))));
    },
    mapBy: (application, scope) => {
      const { set, run } = this.#overSet(application, scope);
      return () => this.values.map(elementsOf(set()).map((element) => [element, run(element)]));
    },
    setBy: ({ args: [map, key, lambda] }, scope) => {
      const [mapOf, keyAt] = [this.compile(required(map), scope), this.compile(required(key), scope)];
      const run = this.#lambda(required(lambda), scope);
      return () => {
        const [entries, at] = [entriesOf(mapOf()), keyAt()];
        return this.values.map(entries.map(([of, value]) => [of, of === at ? run(value) : value]));
      };
    },
    fold: ({ args: [set, initial, lambda] }, scope) => {
      const [setOf, initialOf] = [this.compile(required(set), scope), this.compile(required(initial), scope)];
      const run = this.#lambda(required(lambda), scope);
      return () => elementsOf(setOf()).reduce((sum, element) => run(sum, element), initialOf());
    },
  };

  #overSet({ args: [set, lambda] }: Application, scope: Scope): { set: Evaluate; run: (element: Value) => Value } {
    return { set: this.compile(required(set), scope), run: this.#lambda(required(lambda), scope) };
  }

  #lambda(expression: Expression, scope: Scope): (...args: readonly Value[]) => Value {
    if (expression.kind !== "lambda") throw new Error(`a lambda is expected, not ${expression.kind}`);
    const operation = bind(expression, scope);
    const body = this.compile(operation.body, operation.scope);
    return (...args) => {
      operation.params.forEach((param, at) => {
        param.value = args[at];
      });
      return body();
    };
  }
}

/** Gives the parameters cells. A tuple's parts are one parameter each. */
function bind({ params, expr }: Lambda, scope: Scope): BoundOperator {
  const bindings = params.map((): Binding => ({ value: undefined }));
  const inner = new Map(scope);
  params.forEach(({ name }, at) => {
    const binding = bindings[at];
    if (binding !== undefined) inner.set(name, () => boundValue(binding, name));
  });
  return { params: bindings, body: expr, scope: inner };
}

function boundValue({ value }: Binding, name: string): Value {
  if (value === undefined) throw new Error(`${name} has no value`);
  return value;
}

function once(evaluate: Evaluate): Evaluate {
  let value: Value | undefined;
  return () => (value ??= evaluate());
}

/** Without an array method for the usual numbers of arguments: this is the inner loop of an exploration. */
function applied(args: readonly Evaluate[], operator: (args: readonly Value[]) => Value): Evaluate {
  const [first, second, third] = args;
  if (first === undefined) return () => operator([]);
  if (second === undefined) return () => operator([first()]);
  if (third === undefined) return () => operator([first(), second()]);
  if (args.length === 3) return () => operator([first(), second(), third()]);
  return () => operator(args.map((arg) => arg()));
}

/** A tree: one level for each argument. */
interface Results {
  value: Value | undefined;
  readonly of: Map<Value, Results>;
}

function remembering(run: (args: readonly Value[]) => Value): (args: readonly Value[]) => Value {
  const results: Results = { value: undefined, of: new Map() };
  let size = 0;
  let calls = 0;
  let misses = 0;
  return (args) => {
    // An operator on whole states meets the same arguments too rarely.
    if (calls > PROBATION && misses * 2 > calls) return run(args);
    calls++;
    if (size >= MEMO_LIMIT) {
      results.of.clear();
      size = 0;
    }
    let at = results;
    for (const arg of args) {
      let inner = at.of.get(arg);
      if (inner === undefined) {
        inner = { value: undefined, of: new Map() };
        at.of.set(arg, inner);
        size++;
      }
      at = inner;
    }
    if (at.value === undefined) {
      misses++;
      at.value = run(args);
      if (calls > PROBATION && misses * 2 > calls) results.of.clear();
    }
    return at.value;
  };
}

function sizeOf(expression: Expression): number {
  switch (expression.kind) {
    case "app":
      return expression.args.reduce((sum, arg) => sum + sizeOf(arg), 1);
    case "lambda":
      return 1 + sizeOf(expression.expr);
    case "let":
      return 1 + sizeOf(expression.opdef.expr) + sizeOf(expression.expr);
    default:
      return 1;
  }
}

export function required<T>(part: T | undefined): T {
  if (part === undefined) throw new Error("an argument is missing");
  return part;
}
