type Fields = Readonly<Record<string, unknown>>;

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isTextOrNone(value: unknown): boolean {
  return typeof value === "string" || value === undefined;
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}

function isKind(value: unknown): boolean {
  if (!isFields(value)) return false;
  return typeof value.group === "string" && typeof value.version === "string" && typeof value.kind === "string";
}

function isResource(value: unknown): boolean {
  if (!isFields(value)) return false;
  return typeof value.group === "string" && typeof value.version === "string" && typeof value.resource === "string";
}

function isUser(value: unknown): boolean {
  if (!isFields(value)) return false;
  const { username, uid, groups, extra } = value;
  if (!isTextOrNone(username) || !isTextOrNone(uid)) return false;
  if (groups !== undefined && groups !== null && !isTexts(groups)) return false;
  if (extra === undefined || extra === null) return true;
  return isFields(extra) && Object.values(extra).every((values) => values === null || isTexts(values));
}

function isOperation(value: unknown): boolean {
  return value === "DELETE" || value === "CREATE" || value === "UPDATE" || value === "CONNECT";
}

/**
 * True only for what the schema of an AdmissionReview takes. Written out field by field: the compiled schema reads all fields of all
 * objects in one place, which is several times slower, and every review goes through here. What is false is for the schema to name.
 */
export function isPlainReview(raw: unknown): boolean {
  if (!isFields(raw) || typeof raw.apiVersion !== "string" || typeof raw.kind !== "string") return false;
  const request = raw.request;
  if (!isFields(request) || typeof request.uid !== "string" || !isOperation(request.operation)) return false;
  if (!isKind(request.kind) || !isResource(request.resource) || !isUser(request.userInfo)) return false;
  const { requestKind, requestResource, dryRun } = request;
  if (requestKind !== undefined && requestKind !== null && !isKind(requestKind)) return false;
  if (requestResource !== undefined && requestResource !== null && !isResource(requestResource)) return false;
  if (dryRun !== undefined && dryRun !== null && typeof dryRun !== "boolean") return false;
  const { subResource, requestSubResource, name, namespace } = request;
  return isTextOrNone(subResource) && isTextOrNone(requestSubResource) && isTextOrNone(name) && isTextOrNone(namespace);
}
