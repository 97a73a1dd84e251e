declare const PODSEIDON_VERSION: string | undefined;

/** The version of package.json in a build; code that runs from source says so. */
export const version: string = typeof PODSEIDON_VERSION === "string" ? PODSEIDON_VERSION : "0.0.0-source";
