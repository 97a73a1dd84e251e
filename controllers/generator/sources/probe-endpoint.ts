/** What the CRD of PodProtectors refuses: an account, which would show in every protector. */
const WITH_ACCOUNT = /^([a-zA-Z]+:\/*)?[^/?#]*@/;
const MAX_LENGTH = 2048;

/** Why no protector can have this endpoint of a probe. The CRD of budgets takes any text. */
export function endpointProblem(endpoint: string): string | undefined {
  if (endpoint.length > MAX_LENGTH) return `has more than ${MAX_LENGTH} characters`;
  return WITH_ACCOUNT.test(endpoint) ? "has a user name or a password" : undefined;
}
