package sink

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// awsCredentials gives the AWS SDK's chain nothing but these.
func awsCredentials(t *testing.T, id, secret, session string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": session,
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_REGION": "us-west-2", "AWS_PROFILE": "",
	} {
		t.Setenv(name, value)
	}
}

// signed checks that a token is what MSK expects, and returns the query of the URL that it is.
// https://github.com/aws/aws-msk-iam-auth#details
func signed(t *testing.T, token string) url.Values {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	u, err := url.Parse(string(text))
	require.NoError(t, err)
	require.Equal(t, "https", u.Scheme)
	require.Equal(t, "kafka.eu-central-1.amazonaws.com", u.Host)
	require.Equal(t, "/", u.Path)
	q := u.Query()
	require.Equal(t, "kafka-cluster:Connect", q.Get("Action"))
	require.Equal(t, "AWS4-HMAC-SHA256", q.Get("X-Amz-Algorithm"))
	require.Equal(t, "900", q.Get("X-Amz-Expires"), "seconds")
	require.Equal(t, "host", q.Get("X-Amz-SignedHeaders"))
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{64}$`), q.Get("X-Amz-Signature"))
	date, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), date, time.Minute)
	require.Equal(t, "AKIDEXAMPLE/"+date.Format("20060102")+"/eu-central-1/kafka-cluster/aws4_request",
		q.Get("X-Amz-Credential"), "the setting's region, whatever the environment's")
	return q
}

func TestMSK_SignsAToken(t *testing.T) {
	awsCredentials(t, "AKIDEXAMPLE", "s3cr3t", "session")
	msk := &MSK{Region: "eu-central-1"}
	source := msk.tokens(t.Context(), time.Minute)
	token, err := source.Token()
	require.NoError(t, err)
	require.Empty(t, token.Extensions)
	require.Equal(t, "session", signed(t, token.Token).Get("X-Amz-Security-Token"))

	awsCredentials(t, "AKIDEXAMPLE", "another", "renewed")
	token, err = source.Token()
	require.NoError(t, err)
	require.Equal(t, "session", signed(t, token.Token).Get("X-Amz-Security-Token"), "the SDK keeps what does not expire")
	source.forget()
	token, err = source.Token()
	require.NoError(t, err)
	require.Equal(t, "renewed", signed(t, token.Token).Get("X-Amz-Security-Token"))

	awsCredentials(t, "", "", "")
	_, err = msk.tokens(t.Context(), time.Minute).Token()
	require.ErrorContains(t, err, "AWS_MSK_IAM")
}

// A broker that writes down what it is sent.
func TestMSK_LogsInByOAuthBearer(t *testing.T) {
	awsCredentials(t, "AKIDEXAMPLE", "s3cr3t", "")
	broker := sarama.NewMockBroker(t, 1)
	defer broker.Close()
	versions := sarama.NewMockApiVersionsResponse(t).SetApiKeys([]sarama.ApiVersionsResponseKey{
		{ApiKey: 17, MaxVersion: 1}, {ApiKey: 18, MaxVersion: 3}, {ApiKey: 36, MaxVersion: 2}, // of the login
	})
	broker.SetHandlerByMap(map[string]sarama.MockResponse{
		"ApiVersionsRequest":      versions,
		"SaslHandshakeRequest":    sarama.NewMockSaslHandshakeResponse(t).SetEnabledMechanisms([]string{"OAUTHBEARER"}),
		"SaslAuthenticateRequest": sarama.NewMockSaslAuthenticateResponse(t),
	})
	cfg := testConfig(t, []string{broker.Addr()}, func(c *Config) {
		c.SASL = &SASL{Mechanism: mskIAM, MSK: &MSK{Region: "eu-central-1"}}
	})
	conf, err := cfg.sarama(t.Context(), &dialer{ctx: t.Context(), timeout: cfg.Timeout})
	require.NoError(t, err)
	opened, err := cfg.open(conf, broker.Addr())
	require.NoError(t, err)
	require.NoError(t, opened.Close())

	var mechanism, message string
	for _, sent := range broker.History() {
		switch r := sent.Request.(type) {
		case *sarama.SaslHandshakeRequest:
			mechanism = r.Mechanism
		case *sarama.SaslAuthenticateRequest:
			message = string(r.SaslAuthBytes)
		}
	}
	require.Equal(t, "OAUTHBEARER", mechanism)
	parts := regexp.MustCompile("^n,,\x01auth=Bearer ([A-Za-z0-9_-]+)\x01\x01$").FindStringSubmatch(message) // RFC 7628
	require.Len(t, parts, 2)
	signed(t, parts[1])

	broker.SetHandlerByMap(map[string]sarama.MockResponse{
		"ApiVersionsRequest":   versions,
		"SaslHandshakeRequest": sarama.NewMockSaslHandshakeResponse(t).SetEnabledMechanisms([]string{"OAUTHBEARER"}),
		"SaslAuthenticateRequest": sarama.NewMockSaslAuthenticateResponse(t).
			SetError(sarama.ErrSASLAuthenticationFailed),
	})
	_, err = cfg.open(conf, broker.Addr())
	require.ErrorContains(t, err, "log in by AWS_MSK_IAM")
	require.ErrorContains(t, err, "kafka-cluster:Connect")
	require.ErrorIs(t, err, sarama.ErrSASLAuthenticationFailed)
	require.NotContains(t, err.Error(), parts[1])
}

func TestMSK_AssumesARole(t *testing.T) {
	awsCredentials(t, "AKIDEXAMPLE", "s3cr3t", "")
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		if r.Form.Get("Action") != "AssumeRole" || r.Form.Get("RoleArn") != "arn:aws:iam::123456789012:role/relay" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
			<Credentials><AccessKeyId>AKIDEXAMPLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
			<SessionToken>of the role</SessionToken><Expiration>%s</Expiration></Credentials>
			</AssumeRoleResult></AssumeRoleResponse>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer sts.Close()
	t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
	msk := &MSK{Region: "eu-central-1", Role: "arn:aws:iam::123456789012:role/relay"}
	token, err := msk.tokens(t.Context(), time.Minute).Token()
	require.NoError(t, err)
	require.Equal(t, "of the role", signed(t, token.Token).Get("X-Amz-Security-Token"))
}
