package ecrtest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/forkd/forkd/internal/images/ecr/ecrtest"
)

const (
	exampleSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	emptyHash     = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// vectors are published by AWS: of its suite of test vectors, and of its guide to signatures.
var vectors = []struct {
	name, method, url, contentType, service, headers, signature string
}{
	{"get-vanilla", "GET", "https://example.amazonaws.com/", "", "service", "host;x-amz-date",
		"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	{"post-vanilla", "POST", "https://example.amazonaws.com/", "", "service", "host;x-amz-date",
		"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
	{"ListUsers of the guide", "GET", "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
		"application/x-www-form-urlencoded; charset=utf-8", "iam", "content-type;host;x-amz-date",
		"5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"},
}

func TestPublishedSignatures(t *testing.T) {
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), v.method, v.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if v.contentType != "" {
				r.Header.Set("Content-Type", v.contentType)
			}
			keys := aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: exampleSecret}
			if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, emptyHash, v.service, "us-east-1", at); err != nil {
				t.Fatal(err)
			}
			want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/" + v.service + "/aws4_request, " +
				"SignedHeaders=" + v.headers + ", Signature=" + v.signature
			if got := r.Header.Get("Authorization"); got != want {
				t.Errorf("the signer's header is\n%s, want\n%s", got, want)
			}
			s, err := ecrtest.ParseSignature(want)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(r, nil, exampleSecret); err != nil {
				t.Errorf("the published signature: %v", err)
			}
			if s.Check(r, nil, exampleSecret+"x") == nil || s.Check(r, []byte("x"), exampleSecret) == nil {
				t.Error("another key or another body passes")
			}
			r.Header.Set("X-Amz-Target", "x")
			if s.Check(r, nil, exampleSecret) == nil {
				t.Error("a header that is not signed passes")
			}
		})
	}
}
