/** The steps of the specification: every state that an action can make of a state, whatever it chooses. */
import { type Binding, type BoundOperator, type Evaluate, type Evaluator, required, type Scope } from "./evaluate.ts";
import { applied, literal } from "./literals.ts";
import { isTrue } from "./operators.ts";
import type { Application, Expression } from "./syntax.ts";
import { elementsOf, type Value } from "./values.ts";

/** Runs an action, and `then` for each way in which it is possible. */
type Act = (then: () => void) => void;

export interface NextState {
  readonly state: Value;
  /** The innermost action that made it. */
  readonly action: string;
  readonly args: readonly Value[];
}

/** The variable of the specification: its value before the step, and after it. */
export class Actions {
  readonly #evaluator: Evaluator;
  readonly #variable: Binding;
  #after: Value | undefined;
  /** The innermost action, and its arguments. */
  #name = "";
  #args: readonly Value[] = [];
  readonly #acts = new Map<string, Act>();
  readonly #isAction = new Map<string, boolean>();

  constructor(evaluator: Evaluator) {
    const [variable, ...others] = evaluator.variables.values();
    if (variable === undefined || others.length > 0) throw new Error("one variable is expected");
    this.#evaluator = evaluator;
    this.#variable = variable;
  }

  /** Every state after `action` in `state`, each as often as there are ways to it. Undefined: the start. */
  after(action: string, state?: Value): NextState[] {
    return this.#run(this.#named(action), action, state);
  }

  /** Every state after `action` with these arguments, which the specification has to be able to choose. */
  afterCall(action: string, args: readonly (string | number | boolean)[], state: Value): Value[] {
    const key = `${action} ${JSON.stringify(args)}`;
    const act = this.#acts.get(key) ?? this.#compile(applied(action, args.map(literal)), new Map());
    this.#acts.set(key, act);
    return this.#run(act, action, state).map((next) => next.state);
  }

  #run(act: Act, action: string, state: Value | undefined): NextState[] {
    const steps: NextState[] = [];
    this.#variable.value = state;
    act(() => {
      if (this.#after === undefined) throw new Error(`${action} assigns nothing`);
      steps.push({ state: this.#after, action: this.#name, args: this.#args });
    });
    return steps;
  }

  /** A predicate on states. */
  predicate(name: string): (state: Value) => boolean {
    const evaluate = this.#evaluator.compile({ kind: "name", id: 0, name }, new Map());
    return (state) => {
      this.#variable.value = state;
      return isTrue(evaluate());
    };
  }

  #named(name: string): Act {
    const known = this.#acts.get(name);
    if (known !== undefined) return known;
    const definition = this.#evaluator.definition(name);
    if (definition === undefined) throw new Error(`unknown action ${name}`);
    const act = this.#compile(definition.expr, new Map());
    this.#acts.set(name, act);
    return act;
  }

  #compile(expression: Expression, scope: Scope): Act {
    if (!this.#changesState(expression)) {
      const guard = this.#evaluator.compile(expression, scope);
      return (then) => {
        if (isTrue(guard())) then();
      };
    }
    if (expression.kind === "name") return this.#named(expression.name);
    if (expression.kind === "let") {
      const { opdef, expr } = expression;
      if (opdef.qualifier === "nondet") return this.#choice(opdef.name, opdef.expr, expr, scope);
      const { binding, inner } = this.#evaluator.lazily(opdef, scope);
      const body = this.#compile(expr, inner);
      return (then) => {
        binding.value = undefined;
        body(then);
      };
    }
    if (expression.kind !== "app") throw new Error(`not an action: ${expression.kind}`);
    return this.#application(expression, scope);
  }

  #choice(name: string, set: Expression, body: Expression, scope: Scope): Act {
    if (set.kind !== "app" || set.opcode !== "oneOf") throw new Error(`${name} is not one of a set`);
    const binding: Binding = { value: undefined };
    const options = this.#evaluator.compile(required(set.args[0]), scope);
    const act = this.#compile(
      body,
      new Map(scope).set(name, () => required(binding.value)),
    );
    return (then) => {
      for (const option of elementsOf(options())) {
        binding.value = option;
        act(then);
      }
    };
  }

  #application({ opcode, args }: Application, scope: Scope): Act {
    switch (opcode) {
      case "assign": {
        const value = this.#evaluator.compile(required(args[1]), scope);
        return (then) => {
          this.#after = value();
          then();
        };
      }
      case "actionAll":
        return args.map((arg) => this.#compile(arg, scope)).reduceRight((rest, act) => (then) => act(() => rest(then)));
      case "actionAny": {
        const acts = args.map((arg) => this.#compile(arg, scope));
        return (then) => {
          for (const act of acts) act(then);
        };
      }
      default:
        return this.#call(opcode, args, scope);
    }
  }

  #call(name: string, args: readonly Expression[], scope: Scope): Act {
    const operation = this.#evaluator.operation(name);
    if (operation === undefined) throw new Error(`unknown action ${name}`);
    const values = args.map((arg) => this.#evaluator.compile(arg, scope));
    const key = `${name}/`;
    const body = this.#acts.get(key) ?? this.#compile(operation.body, operation.scope);
    this.#acts.set(key, body);
    return (then) => this.#enter(name, operation, values, body, then);
  }

  #enter(name: string, operation: BoundOperator, args: readonly Evaluate[], body: Act, then: () => void): void {
    const values = args.map((arg) => arg());
    operation.params.forEach((param, at) => {
      param.value = values[at];
    });
    this.#name = name;
    this.#args = values;
    body(then);
  }

  #changesState(expression: Expression): boolean {
    switch (expression.kind) {
      case "name":
        return this.#isActionName(expression.name);
      case "let":
        return this.#changesState(expression.expr);
      case "app":
        if (["assign", "actionAll", "actionAny"].includes(expression.opcode)) return true;
        return this.#isActionName(expression.opcode);
      default:
        return false;
    }
  }

  #isActionName(name: string): boolean {
    const known = this.#isAction.get(name);
    if (known !== undefined) return known;
    const isAction = this.#evaluator.definition(name)?.qualifier === "action";
    this.#isAction.set(name, isAction);
    return isAction;
  }
}
