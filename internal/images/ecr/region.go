package ecr

import (
	"fmt"
	"regexp"
	"strings"
)

// aRegion has the form of AWS's regions. It has no dot, slash, colon or @, so that no region can name another host.
var aRegion = regexp.MustCompile(`^[a-z]{2}(-[a-z]{2,12}){1,2}-[0-9]{1,2}$`)

// domainOf returns the domain of a region's hosts.
func domainOf(region string) (string, error) {
	switch {
	case !aRegion.MatchString(region):
		return "", fmt.Errorf("awsRegion %.40q is no region of AWS: want the one in the image's host, such as eu-west-1",
			region)
	case strings.HasPrefix(region, "us-iso"):
		return "", fmt.Errorf("awsRegion %s is in a partition of AWS that this server does not know: use from_image with "+
			"%s", region, byHand)
	case strings.HasPrefix(region, "cn-"):
		return "amazonaws.com.cn", nil
	}
	return "amazonaws.com", nil
}

// byHand is the way without keys.
const byHand = "the user AWS and the password of `aws ecr get-login-password`"

// apiHost returns the host that gives passwords for a region.
func apiHost(region string) (string, error) {
	domain, err := domainOf(region)
	if err != nil {
		return "", err
	}
	return "api.ecr." + region + "." + domain, nil
}

var anAccount = regexp.MustCompile(`^[0-9]{12}$`)

// checkHost returns an error unless a host is a registry of ECR in the region.
func checkHost(host, region string) error {
	domain, err := domainOf(region)
	if err != nil {
		return err
	}
	if host == "public.ecr.aws" {
		return fmt.Errorf("public.ecr.aws is not a registry of an account, and its images need no keys: use from_image " +
			"without a registry")
	}
	account, rest, _ := strings.Cut(host, ".")
	if anAccount.MatchString(account) && rest == "dkr.ecr."+region+"."+domain {
		return nil
	}
	if other, ok := regionOf(host); ok && other != region {
		return fmt.Errorf("the image is in the region %s, and awsRegion is %s: want the same region", other, region)
	}
	return fmt.Errorf("%.100q is no registry of ECR: want ACCOUNT.dkr.ecr.%s.%s, with the 12 digits of the account",
		host, region, domain)
}

// regionOf returns the region in the name of a registry.
func regionOf(host string) (region string, ok bool) {
	account, rest, _ := strings.Cut(host, ".")
	rest, ok = strings.CutPrefix(rest, "dkr.ecr.")
	region, domain, _ := strings.Cut(rest, ".")
	want, err := domainOf(region)
	return region, ok && err == nil && domain == want && anAccount.MatchString(account)
}
