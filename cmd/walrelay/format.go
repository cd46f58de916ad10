package main

import (
	"mime"
	"net/url"
	"regexp"

	"github.com/walrelay/walrelay/sink"
)

// The values of WALRELAY_FORMAT beside raw.
const (
	cloudBinary     = "cloudevents-binary"
	cloudStructured = "cloudevents-structured"
)

// cloudEvents is nil unless records are to be CloudEvents.
func (s *Settings) cloudEvents() *sink.CloudEvents {
	if s.Format.Text != cloudBinary && s.Format.Text != cloudStructured {
		return nil
	}
	ce := &sink.CloudEvents{
		Structured: s.Format.Text == cloudStructured,
		Source:     s.CloudeventsSource.Text, ContentType: s.CloudeventsContentType.Text,
	}
	if ce.Source == "" {
		ce.Source = "/walrelay/" + s.StreamName() // its characters need no escaping
	}
	return ce
}

func (s *Settings) checkFormat(f *faults) {
	if text := s.CloudeventsSource.Text; text != "" {
		_, err := url.Parse(text)
		f.check(err == nil && uriCharacters.MatchString(text), &s.CloudeventsSource.input,
			"must be a URI reference, as in //shop.example/orders")
	}
	_, _, err := mime.ParseMediaType(s.CloudeventsContentType.Text)
	f.check(err == nil, &s.CloudeventsContentType.input, "must be a media type, as in application/json")
	f.check(s.typed() || s.cloudEvents() == nil, &s.Format.input, "needs %s, since an event of CloudEvents has a type",
		s.ColumnType.variable)
	f.check(s.Format.Text != cloudStructured || !s.TombstoneOnEmpty.Value, &s.TombstoneOnEmpty.input,
		"must be false with %s=%s, whose values are documents and never null", s.Format.variable, cloudStructured)
}

// uriCharacters are what url.Parse is not strict about: RFC 3986, appendix A.
var uriCharacters = regexp.MustCompile(`^[!#-;=?-\[\]_a-z~]+$`)
