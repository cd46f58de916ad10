package inbox

import "crypto/sha256"

// Webhook is the message of a provider's call: the provider is its scope, the provider's event id its id.
// Verify the signature first: an id that anybody can send lets them block a real event. With Table,
// the same id with another body is ErrBodyChanged. Answer Applied and Duplicate alike with 2xx,
// errors with 5xx, so that the provider repeats the call; ErrBodyChanged with 4xx.
func Webhook(provider, eventID string, body []byte) Message {
	digest := sha256.Sum256(body)
	return Message{Consumer: "webhook/" + provider, ID: eventID, Digest: digest[:], Body: body}
}
