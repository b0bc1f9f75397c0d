package ecr

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// temporary is a failure after which the same request may succeed.
type temporary struct{ error }

func (t temporary) Unwrap() error { return t.error }

// aCode is the form of AWS's names of errors.
var aCode = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// refusal returns the error of an answer with another status than 200. AWS's own text is left out: it can have the
// key's ID and what was signed.
func refusal(status int, header string, body []byte) error {
	if status >= 300 && status < 400 {
		return fmt.Errorf("it answered %d, a redirect, which is not followed", status)
	}
	code, text := codeOf(header, body)
	switch code {
	case "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId":
		return fmt.Errorf("AWS does not know the access key (%s): check awsAccessKeyId, that the key is active, and that "+
			"the account uses the region", code)
	case "InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired":
		if code == "RequestExpired" || strings.Contains(text, "expired") || strings.Contains(text, "not yet current") {
			return fmt.Errorf("AWS refused the time of the request (%s): the operator should set this server's clock", code)
		}
		return fmt.Errorf("the secret key does not belong to the access key (%s): check awsSecretAccessKey", code)
	case "AccessDeniedException", "AccessDenied", "NotAuthorized":
		return fmt.Errorf("AWS denied access (%s): the user needs a policy that allows ecr:GetAuthorizationToken, and "+
			"ecr:BatchGetImage and ecr:GetDownloadUrlForLayer for the image", code)
	case "OptInRequired":
		return fmt.Errorf("AWS refused the account (%s): enable the region in it", code)
	}
	var err error
	if code == "" {
		err = fmt.Errorf("it answered %d", status)
	} else {
		err = fmt.Errorf("it answered %d (%s)", status, code)
	}
	if status >= 500 || status == http.StatusTooManyRequests || strings.HasPrefix(code, "Throttling") {
		return temporary{fmt.Errorf("%w: begin the build again later", err)}
	}
	return err
}

// codeOf returns the name of an error and AWS's text, which are empty if the answer is not AWS's. Names may have a
// name space before # and an address after a colon.
func codeOf(header string, body []byte) (code, text string) {
	var b struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &b) // an answer of another server has no name
	code = b.Type
	if code == "" {
		code = header
	}
	code, _, _ = strings.Cut(code, ":")
	code = code[strings.LastIndex(code, "#")+1:]
	if !aCode.MatchString(code) {
		return "", ""
	}
	return code, b.Message
}
