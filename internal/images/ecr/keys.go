package ecr

import (
	"errors"
	"regexp"
	"strings"
)

// Keys are those of a user of AWS. They are in no error.
type Keys struct {
	// AccessKeyID is in the request.
	AccessKeyID string
	// SecretAccessKey signs the request, and is not in it.
	SecretAccessKey string
	// Region is the registry's, such as eu-west-1.
	Region string
}

// anID is AWS's form of a key's ID.
var anID = regexp.MustCompile(`^[A-Za-z0-9_]{16,128}$`)

const maxSecret = 256

// Check returns an error for keys that cannot give a password for the registry of a host. It sends no request.
func (k Keys) Check(host string) error {
	switch {
	case k.AccessKeyID == "" || k.SecretAccessKey == "":
		return errors.New("awsAccessKeyId or awsSecretAccessKey is missing")
	case !anID.MatchString(k.AccessKeyID):
		return errors.New("awsAccessKeyId is not the ID of an access key: want 16 to 128 letters and digits, such as AKIA…")
	case strings.HasPrefix(k.AccessKeyID, "ASIA"):
		return errors.New("awsAccessKeyId is a temporary key, which AWS accepts with its session token only, and the " +
			"request has no place for one: use the key of an IAM user, or from_image with " + byHand)
	case len(k.SecretAccessKey) > maxSecret:
		return errors.New("awsSecretAccessKey is too long for one")
	}
	return checkHost(host, k.Region)
}
