// A real OpenID Connect provider for tests: PORT, CLIENT (JSON) and the file of its people, read at each sign-in.
import { readFileSync } from 'node:fs';
import Provider from 'oidc-provider';

const [port, client, people] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [JSON.parse(client)],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'], groups: ['groups', 'org'] },
  scopes: ['openid', 'email', 'profile', 'groups'],
  pkce: { required: () => true },
  findAccount: (_, sub) => ({
    accountId: sub,
    claims: () => ({ sub, ...JSON.parse(readFileSync(people, 'utf8'))[sub] }),
  }),
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
