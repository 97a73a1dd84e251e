import { TransportError, type TransportErrorTag } from "./transport.ts";

const TAG_BY_CODE: Readonly<Record<string, TransportErrorTag>> = {
  ECONNREFUSED: "refused",
  EHOSTUNREACH: "refused",
  ENETUNREACH: "refused",
  EADDRNOTAVAIL: "refused",
  EHOSTDOWN: "refused",
  ENETDOWN: "refused",
  ECONNRESET: "reset",
  ECONNABORTED: "reset",
  EPIPE: "reset",
  ERR_STREAM_PREMATURE_CLOSE: "reset",
  ETIMEDOUT: "timeout",
  ENOTFOUND: "dns",
  EAI_AGAIN: "dns",
  EAI_FAIL: "dns",
  EAI_NODATA: "dns",
  EPROTO: "tls",
  UNSPECIFIED: "tls",
};

/** Codes of Node and OpenSSL. */
const TLS_CODES = /^(ERR_(TLS|SSL|OSSL)_|(CERT|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO)_|HOSTNAME_MISMATCH|PATH_LENGTH)/;
const TLS_CA_CODES = /^INVALID_(CA|PURPOSE)/;
/** The server rejects the client's certificate. With TLS 1.3, the client gets this alert after its own handshake. */
const CERTIFICATE_ALERTS = /_ALERT_(BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_|UNKNOWN_CA|ACCESS_DENIED)/;

/** The code of an error of Node.js; empty for any other. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}

function tagOf(code: string): TransportErrorTag {
  const known = TAG_BY_CODE[code];
  if (known !== undefined) return known;
  if (TLS_CODES.test(code) || TLS_CA_CODES.test(code)) return "tls";
  return code.startsWith("HPE_") || code.startsWith("ERR_HTTP") || code.startsWith("ERR_INVALID")
    ? "protocol"
    : "reset";
}

/** What is wrong, and what the user can check. */
const ADVICE: Readonly<Record<TransportErrorTag, string>> = {
  timeout: "did not answer in time; is it overloaded, or a firewall in between?",
  aborted: "the call was given up",
  refused: "nothing answers there; is the apiserver running, and is the address right?",
  reset: "the connection was lost",
  dns: "the host name could not be resolved; check the server's address and the DNS",
  tls: "TLS failed; check the CA, the server's name and the client certificate",
  credentials: "no usable credentials",
  protocol: "the answer is no HTTP; is something else listening there?",
  oversized: "the answer is larger than this client accepts",
};

/**
 * Classifies an error of node:https. `sent` is whether the caller may have sent the request. An alert about the
 * client's certificate overrides it, because the server then reads no request. Other TLS failures, and unreachable
 * hosts, also occur on connections in use. Messages contain the address and the code, never headers or bodies.
 */
export function transportError(error: unknown, sent: boolean, where: string): TransportError {
  if (error instanceof TransportError) return error;
  const code = codeOf(error);
  const tag = tagOf(code);
  // OpenSSL has a reason for which Node has no code, such as a weak key.
  const detail = code === "UNSPECIFIED" && error instanceof Error ? error.message : code;
  return failed(tag, sent && !CERTIFICATE_ALERTS.test(code), where, { cause: error, detail });
}

/** Returns a TransportError with the text of its tag. */
export function failed(
  tag: TransportErrorTag,
  sent: boolean,
  where: string,
  options: { cause?: unknown; detail?: string } = {},
): TransportError {
  const detail = options.detail ? ` (${options.detail})` : "";
  return new TransportError(tag, sent, `${where}: ${ADVICE[tag]}${detail}`, { cause: options.cause });
}
