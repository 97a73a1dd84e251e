import { compileSelector, ignoredBy, type Labels, type Unreadable } from "../../decide/availability/selector.ts";
import type { LabelSelector } from "../../schema/podprotector.ts";
import { type Requirements, requirementsOf } from "./selector-tokens.ts";

/** One fact about labels: `key=value`, or `key` with any value. */
interface Token {
  readonly key: string;
  /** Undefined for any value. */
  readonly value: string | undefined;
  /** Placements that need the token. The fewer, the more selective it is. */
  uses: number;
  /** The last query whose labels have the token: "is a subset of the labels" is then one comparison for each token. */
  seenBy: number;
}

interface KeyTokens {
  readonly values: Map<string, Token>;
  exists: Token | undefined;
}

interface Node<K> {
  readonly parent: Node<K> | undefined;
  /** The token on the edge from the parent. */
  readonly edge: Token | undefined;
  /** Placements below this node, each under the rarest of its remaining tokens. */
  readonly children: Map<Token, Node<K>>;
  placements: Placement<K>[];
}

/** A selector at a node of the trie: labels on the path to it have the tokens of the path, and need `rest` as well. */
interface Placement<K> {
  readonly entry: Entry<K>;
  readonly tokens: readonly Token[];
  node: Node<K>;
  rest: readonly Token[];
}

interface Entry<K> {
  readonly key: K;
  readonly namespace: string;
  readonly selector: LabelSelector;
  readonly ignored: LabelSelector | undefined;
  readonly problems: readonly string[];
  /** Checks the requirements that tokens can't express; undefined without any. */
  readonly residual: ((labels: Labels) => boolean) | undefined;
  readonly placements: Placement<K>[];
}

interface Namespace<K> {
  readonly keys: Map<string, KeyTokens>;
  readonly root: Node<K>;
  size: number;
}

/** Most selectors with remaining tokens at a node: comparing a few tokens is cheaper than another level of nodes. */
const SPLIT_ABOVE = 8;

/**
 * Finds the protectors that select a pod: a set-trie (Savnik 2012) for each namespace. A selector is a set of tokens,
 * and so are the labels of a pod. A walk down the tokens of the pod finds the selectors whose set is a subset of them.
 * Paths go from the rarest token to the commonest, so that a pod visits few nodes. Requirements that tokens can't
 * express (NotIn, DoesNotExist) are checked at the end. Selectors with a common prefix share nodes. Nodes are split
 * when they fill, and removed when they are empty.
 */
export class SelectorIndex<K> {
  readonly #unreadable: Unreadable;
  readonly #entries = new Map<K, Entry<K>>();
  readonly #namespaces = new Map<string, Namespace<K>>();
  #query = 0;

  /** `unreadable` is how an unreadable requirement counts; by default, it matches, so that more pods are protected. */
  constructor(unreadable: Unreadable = "matches") {
    this.#unreadable = unreadable;
  }

  get size(): number {
    return this.#entries.size;
  }

  /**
   * Adds or replaces a selector, except for labels that `ignored` selects. Returns its unreadable requirements. Cheap
   * for an unchanged selector.
   */
  set(key: K, namespace: string, selector: LabelSelector, ignored?: LabelSelector): readonly string[] {
    const present = this.#entries.get(key);
    if (present?.namespace === namespace && isSame(present.selector, selector) && isSame(present.ignored, ignored))
      return present.problems;
    this.delete(key);

    const { problems } = compileSelector(selector, this.#unreadable);
    const requirements = requirementsOf(selector);
    const rest = requirements.residual && compileSelector(requirements.residual, this.#unreadable).matches;
    const isIgnored = ignoredBy(ignored);
    const residual = isIgnored ? (labels: Labels) => !isIgnored(labels) && (rest?.(labels) ?? true) : rest;
    const entry: Entry<K> = { key, namespace, selector, ignored, problems, residual, placements: [] };
    this.#entries.set(key, entry);
    // A selector that can't match is not in the trie.
    if (problems.length === 0 || this.#unreadable === "matches") this.#place(entry, requirements);
    return problems;
  }

  delete(key: K): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    const namespace = this.#namespaces.get(entry.namespace);
    if (namespace === undefined || entry.placements.length === 0) return;
    for (const placement of entry.placements) {
      removeFromNode(placement);
      for (const token of placement.tokens) releaseToken(namespace, token);
    }
    namespace.size -= 1;
    if (namespace.size === 0) this.#namespaces.delete(entry.namespace);
  }

  /** Returns the keys whose selector matches, each once, in no particular order. */
  match(namespaceName: string, labels: Labels): K[] {
    const namespace = this.#namespaces.get(namespaceName);
    const found: K[] = [];
    if (namespace === undefined) return found;
    this.#query += 1;
    const tokens = markTokens(namespace, labels, this.#query);
    collect(namespace.root, tokens, this.#query, labels, found);
    return found;
  }

  /** Nodes and tokens in memory, so that tests see leaks. */
  stats(): { readonly nodes: number; readonly tokens: number; readonly namespaces: number } {
    let nodes = 0;
    let tokens = 0;
    const count = (node: Node<K>): void => {
      nodes += 1;
      for (const child of node.children.values()) count(child);
    };
    for (const { root, keys } of this.#namespaces.values()) {
      count(root);
      for (const { values, exists } of keys.values()) tokens += values.size + (exists === undefined ? 0 : 1);
    }
    return { nodes, tokens, namespaces: this.#namespaces.size };
  }

  #place(entry: Entry<K>, { alternatives }: Requirements): void {
    let namespace = this.#namespaces.get(entry.namespace);
    if (namespace === undefined) {
      namespace = { keys: new Map(), root: newNode<K>(undefined, undefined), size: 0 };
      this.#namespaces.set(entry.namespace, namespace);
    }
    namespace.size += 1;
    for (const alternative of alternatives) {
      const tokens = alternative.map(({ key, value }) => acquireToken(namespace.keys, key, value));
      const placement: Placement<K> = { entry, tokens, node: namespace.root, rest: tokens };
      entry.placements.push(placement);
      insert(placement);
    }
  }
}

function isSame(a: LabelSelector | undefined, b: LabelSelector | undefined): boolean {
  return a === b || textOf(a) === textOf(b);
}

function textOf(selector: LabelSelector | undefined): string {
  return JSON.stringify([selector?.matchLabels, selector?.matchExpressions]);
}

function newNode<K>(parent: Node<K> | undefined, edge: Token | undefined): Node<K> {
  return { parent, edge, children: new Map(), placements: [] };
}

/** Moves a placement as deep below its node as the trie has nodes for its tokens. */
function insert<K>(placement: Placement<K>): void {
  let { node } = placement;
  for (;;) {
    const edge = placement.rest.length > 0 && node.children.size > 0 ? rarest(placement.rest) : undefined;
    if (edge === undefined) break;
    node = childOf(node, edge);
    placement.node = node;
    placement.rest = without(placement.rest, edge);
  }
  node.placements.push(placement);
  if (placement.rest.length > 0 && node.placements.length > SPLIT_ABOVE) split(node);
}

/** Moves the placements with remaining tokens one level down when the node has too many of them. */
function split<K>(node: Node<K>): void {
  const unfinished = node.placements.filter(({ rest }) => rest.length > 0);
  if (unfinished.length <= SPLIT_ABOVE) return;
  node.placements = node.placements.filter(({ rest }) => rest.length === 0);
  for (const placement of unfinished) {
    const edge = rarest(placement.rest);
    if (edge === undefined) continue;
    placement.node = childOf(node, edge);
    placement.rest = without(placement.rest, edge);
    insert(placement);
  }
}

function childOf<K>(node: Node<K>, edge: Token): Node<K> {
  let child = node.children.get(edge);
  if (child === undefined) {
    child = newNode(node, edge);
    node.children.set(edge, child);
  }
  return child;
}

function removeFromNode<K>(placement: Placement<K>): void {
  let node = placement.node;
  const index = node.placements.indexOf(placement);
  const last = node.placements.pop();
  if (last !== undefined && last !== placement) node.placements[index] = last;
  while (
    node.placements.length === 0 &&
    node.children.size === 0 &&
    node.parent !== undefined &&
    node.edge !== undefined
  ) {
    node.parent.children.delete(node.edge);
    node = node.parent;
  }
}

function rarest(tokens: readonly Token[]): Token | undefined {
  let best: Token | undefined;
  for (const token of tokens) {
    if (best === undefined || token.uses < best.uses) best = token;
  }
  return best;
}

function without(tokens: readonly Token[], token: Token): Token[] {
  return tokens.filter((one) => one !== token);
}

function acquireToken(keys: Map<string, KeyTokens>, key: string, value: string | undefined): Token {
  let tokens = keys.get(key);
  if (tokens === undefined) {
    tokens = { values: new Map(), exists: undefined };
    keys.set(key, tokens);
  }
  let token = value === undefined ? tokens.exists : tokens.values.get(value);
  if (token === undefined) {
    token = { key, value, uses: 0, seenBy: 0 };
    if (value === undefined) tokens.exists = token;
    else tokens.values.set(value, token);
  }
  token.uses += 1;
  return token;
}

function releaseToken<K>({ keys }: Namespace<K>, token: Token): void {
  token.uses -= 1;
  const tokens = keys.get(token.key);
  if (token.uses > 0 || tokens === undefined) return;
  if (token.value === undefined) tokens.exists = undefined;
  else tokens.values.delete(token.value);
  if (tokens.values.size === 0 && tokens.exists === undefined) keys.delete(token.key);
}

/** Returns the tokens of these labels that selectors of the namespace need, and marks them as seen by this query. */
function markTokens<K>({ keys }: Namespace<K>, labels: Labels, query: number): Token[] {
  const found: Token[] = [];
  for (const key of Object.keys(labels)) {
    const tokens = keys.get(key);
    const value = labels[key];
    if (tokens === undefined || value === undefined) continue;
    const pair = tokens.values.get(value);
    if (pair !== undefined) {
      pair.seenBy = query;
      found.push(pair);
    }
    if (tokens.exists !== undefined) {
      tokens.exists.seenBy = query;
      found.push(tokens.exists);
    }
  }
  return found;
}

function collect<K>(node: Node<K>, tokens: readonly Token[], query: number, labels: Labels, found: K[]): void {
  for (const { rest, entry } of node.placements) {
    if (allSeen(rest, query) && (entry.residual === undefined || entry.residual(labels))) found.push(entry.key);
  }
  // Iterates over the smaller of the two: otherwise, a pod with thousands of labels would cost their number at each
  // node of a path.
  if (node.children.size < tokens.length) {
    for (const [edge, child] of node.children) {
      if (edge.seenBy === query) collect(child, tokens, query, labels, found);
    }
    return;
  }
  for (const token of tokens) {
    const child = node.children.get(token);
    if (child !== undefined) collect(child, tokens, query, labels, found);
  }
}

function allSeen(tokens: readonly Token[], query: number): boolean {
  for (const token of tokens) {
    if (token.seenBy !== query) return false;
  }
  return true;
}
