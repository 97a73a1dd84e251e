import { pino } from "pino";
import type { LogLevel } from "../runtime/options/common-options.ts";
import { describeError, scrub } from "./error-fields.ts";

export type LogFields = Readonly<Record<string, unknown>>;

/**
 * Structured lines: the message is constant, and the fields vary. The fields `error` and `cause` include their causes,
 * but no secrets.
 */
export interface Log {
  trace(fields: LogFields, message: string): void;
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
  /** Returns a log whose lines also have these fields (a cell, a protector). */
  child(fields: LogFields): Log;
  readonly level: LogLevel;
}

interface LogDestination {
  write(line: string): void;
}

interface LogOptions {
  /** Default `info`. */
  readonly level?: LogLevel;
  /** The field `component` of every line. */
  readonly component: string;
  /** Default: stdout, buffered while it blocks. */
  readonly destination?: LogDestination;
  /** Called for each line that was dropped because stdout was blocked. */
  readonly onDropped?: () => void;
}

type FlushableLog = Log & {
  /** Writes the buffered lines at once, as the exit of the process does. */
  flush(): void;
};

/**
 * While stdout is blocked, lines are buffered up to this size, then dropped: a log must neither block the process nor
 * fill its memory.
 */
const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
const REDACTED = "[redacted]";
/** Fields that may contain a secret, in a line and one level below. */
const SECRET_FIELDS: ReadonlySet<string> = new Set([
  "token",
  "password",
  "authorization",
  "secret",
  "privateKey",
  "clientKey",
  "tlsKey",
  "kubeconfig",
  "cookie",
]);

/**
 * A log to stdout. It writes asynchronously: a stalled reader of the pipe (a container runtime under load) must not
 * stall admission requests. pino writes the buffered lines when the process exits; they are lost only when it is
 * killed.
 */
export function createLog({ level = "info", component, destination, onDropped }: LogOptions): FlushableLog {
  const options: pino.LoggerOptions = {
    level,
    base: { component },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }), log: redact },
    serializers: {
      error: describeError,
      cause: describeError,
      message: (value: unknown) => (typeof value === "string" ? scrub(value) : value),
    },
  };
  if (destination !== undefined) return { ...facade(pino(options, destination), level), flush: () => {} };
  const stream = pino.destination({ dest: 1, sync: false, maxLength: MAX_BUFFERED_BYTES });
  if (onDropped !== undefined) stream.on("drop", onDropped);
  const flush = (): void => {
    try {
      stream.flushSync();
    } catch {
      // Stdout is closed, and there is no other way to report it.
    }
  };
  // A closed pipe or a full disk must neither end the process nor prevent its end by endless retries.
  stream.on("error", () => {
    stream.flushSync = () => {};
  });
  return { ...facade(pino(options, stream), level), flush };
}

function facade(logger: pino.Logger, level: LogLevel): Log {
  return {
    trace: (fields, message) => logger.trace(fields, message),
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    child: (fields) => facade(logger.child(redact(fields)), level),
    level,
  };
}

/** Returns the fields without secrets; usually there are none, and the result is the same object. */
function redact(fields: LogFields): Record<string, unknown> {
  let clean: Record<string, unknown> | undefined;
  for (const [name, value] of Object.entries(fields)) {
    const kept = SECRET_FIELDS.has(name) && value !== undefined ? REDACTED : withoutSecrets(value);
    if (kept === value) continue;
    clean ??= { ...fields };
    clean[name] = kept;
  }
  return clean ?? fields;
}

function withoutSecrets(value: unknown): unknown {
  if (typeof value !== "object" || value === null || value instanceof Error || Array.isArray(value)) return value;
  const hit = Object.keys(value).some((name) => SECRET_FIELDS.has(name));
  return hit
    ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, SECRET_FIELDS.has(name) ? REDACTED : one]))
    : value;
}

/** A log without output, for tests and tools. */
export const silentLog: Log = {
  trace: () => {},
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  child: () => silentLog,
  level: "error",
};
