declare const PODSEIDON_VERSION: string | undefined;

/** The version of package.json in a build; `0.0.0-source` for code that runs from source. */
export const version: string = typeof PODSEIDON_VERSION === "string" ? PODSEIDON_VERSION : "0.0.0-source";
