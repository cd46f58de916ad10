// Package httpkey makes HTTP requests repeatable by the header Idempotency-Key, as
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ and the large payment APIs
// use it: Guard is the server's half, Transport the client's.
//
// # What is saved and replayed
//
// Status, headers and body, byte for byte, of success and of failure. Of the headers not: hop-by-hop
// ones (RFC 9110, 7.6.1) and trailers, which belong to a connection; Date, which each answer gets anew;
// Content-Length, which follows from the body; Set-Cookie, which is a secret that has no place in a table
// and would bring back an old session. The first caller gets its cookies. Headers that a middleware
// outside the guard sets are not seen by it: they are set on replays as on first answers.
//
// A replay carries Idempotency-Replayed: true.
//
// # What the guard answers by itself
//
// As application/problem+json (RFC 9457):
//
//	400  no key on a route that demands one, several keys, or one that is malformed
//	409  a request of this key is in progress, with Retry-After
//	410  the key was used so long ago that only its hashes are kept
//	413  the body is too large
//	422  the key was used for another request
//	500  the answer was too large to keep, a header of it no text, or the handler left its transaction broken;
//	     nothing happened
//	503  the database did not take the claim or the answer, with Retry-After; the same key may be retried
package httpkey
