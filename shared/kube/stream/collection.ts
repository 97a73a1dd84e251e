/** Where a collection is served, and the query of each request to it. */
export interface Collection {
  /** Path without query, for example `/api/v1/pods`. */
  readonly path: string;
  /** Sent with every list and watch. */
  readonly query: Readonly<Record<string, string>>;
}

type Parameters = Readonly<Record<string, string | number | boolean | undefined>>;

/** Path and query of one request; undefined parameters are left out. */
export function collectionPath(collection: Collection, parameters: Parameters): string {
  const query: Record<string, string> = { ...collection.query };
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query[name] = String(value);
  const text = Object.entries(query)
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
    .join("&");
  return text === "" ? collection.path : `${collection.path}?${text}`;
}

/** The parameter of this name alone; nothing where there is none. */
export function pick(query: Collection["query"] | undefined, name: string): Collection["query"] {
  const value = query?.[name];
  return value === undefined ? {} : { [name]: value };
}
