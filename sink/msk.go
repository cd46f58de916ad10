package sink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// MSK is how AWS_MSK_IAM gets its tokens: signed with the credentials of the AWS SDK's default chain (environment,
// shared files, web identity, container, instance), or of a role that these may assume.
type MSK struct {
	Region string
	Role   string // ARN; optional
}

// credentialsLeft is how long credentials must be valid still: a session with the brokers ends with them, and one that
// is too short is refused.
const credentialsLeft = 5 * time.Minute

// mskTokens implements sarama.AccessTokenProvider: a token is signed for every login, from credentials that the
// SDK keeps as long as they are good. Safe for concurrent use.
type mskTokens struct {
	ctx     context.Context //nolint:containedctx // of Run: sarama's interface has no context argument
	timeout time.Duration
	msk     MSK

	mu    sync.Mutex
	cache *aws.CredentialsCache // nil until the first token
}

func (m *MSK) tokens(ctx context.Context, timeout time.Duration) *mskTokens {
	return &mskTokens{ctx: ctx, timeout: timeout, msk: *m}
}

// Token implements sarama.AccessTokenProvider.
func (t *mskTokens) Token() (*sarama.AccessToken, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cache == nil {
		if err := t.load(ctx); err != nil {
			return nil, &tokenError{fmt.Errorf("find AWS credentials for %s: %w", mskIAM, err)}
		}
	}
	token, _, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, t.msk.Region, t.cache)
	if err != nil {
		return nil, &tokenError{fmt.Errorf("sign a token for %s: %w", mskIAM, err)}
	}
	return &sarama.AccessToken{Token: token}, nil
}

// load sets up the source of credentials, which is asked for none yet.
func (t *mskTokens) load(ctx context.Context) error {
	chain, err := config.LoadDefaultConfig(ctx, config.WithRegion(t.msk.Region))
	if err != nil {
		return err
	}
	source := chain.Credentials
	if t.msk.Role != "" {
		source = stscreds.NewAssumeRoleProvider(sts.NewFromConfig(chain), t.msk.Role,
			func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = "walrelay" })
	}
	t.cache = aws.NewCredentialsCache(source, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = credentialsLeft })
	return nil
}

// forget makes the next login ask for credentials anew, from the files and services as they are then.
func (t *mskTokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cache = nil
}
