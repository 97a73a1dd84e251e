/** A user name in an endpoint, which the CRD of PodProtectors rejects, because every protector would show it. */
const WITH_ACCOUNT = /^([a-zA-Z]+:\/*)?[^/?#]*@/;
const MAX_LENGTH = 2048;

/** Why this endpoint is invalid in a protector; undefined for a valid one. The CRD of budgets accepts any text. */
export function endpointProblem(endpoint: string): string | undefined {
  if (endpoint.length > MAX_LENGTH) return `has more than ${MAX_LENGTH} characters`;
  return WITH_ACCOUNT.test(endpoint) ? "has a user name or a password" : undefined;
}
