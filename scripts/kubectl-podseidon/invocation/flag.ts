/** A flag of the command line. */
export interface Flag {
  /** `string` takes a value. */
  readonly type: "string" | "boolean";
  readonly short?: string;
  /** May be given several times, each with one value. */
  readonly multiple?: true;
  readonly value?: string;
  readonly help: string;
}

/** The flags of one call. */
export interface GivenFlags {
  /** A flag's text; undefined when it was not given. */
  text(name: string): string | undefined;
  /** The texts of a flag that may be given several times. */
  texts(name: string): readonly string[];
}
