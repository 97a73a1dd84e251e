export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export type LogFields = Readonly<Record<string, unknown>>;

/** Structured lines: a constant message, everything that varies in the fields. `error` in the fields is serialised with its causes. */
export interface Log {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
  /** A log whose lines all carry `fields` too (one id per review, a cell, a protector). */
  child(fields: LogFields): Log;
  readonly level: LogLevel;
}

export interface LogOptions {
  readonly level?: LogLevel;
  /** `component` of every line. */
  readonly component: string;
}

/** A log to stdout. `flush` writes out what is buffered; for the very end of the process. */
export declare function createLog(options: LogOptions): Log & { flush(): void };
/** A log that says nothing, for tests and tools. */
export declare const silentLog: Log;
