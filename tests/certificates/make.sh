#!/bin/sh
# Makes the certificates of the tests anew, in this folder. They are kept, so that tests need no openssl; none protects anything.
# bookie.pem and client.pem are vouched for by authority.pem; expired.pem and elsewhere.pem too, but are of no use at 127.0.0.1;
# stranger.pem is vouched for by nobody who is trusted. They have the extensions that Python 3.13 and newer ask for by default.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

authority() { # name
    key "$work/$1-key.pem"
    openssl req -x509 -new -key "$work/$1-key.pem" -subj "/CN=$1 of tests" -days 36500 -out "$1.pem" \
        -addext "keyUsage=critical,keyCertSign,cRLSign"
    mkdir "$work/$1"
    : > "$work/$1/index.txt"
    printf '[ca]\ndefault_ca=it\n[it]\ndatabase=%s/index.txt\nnew_certs_dir=%s\nrand_serial=yes\ndefault_md=sha256\npolicy=any\nunique_subject=no\ncopy_extensions=copy\nx509_extensions=issued\n[any]\ncommonName=supplied\n[issued]\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n' \
        "$work/$1" "$work/$1" > "$work/$1.conf"
}

certificate() { # authority name subjectAltName end
    key "$2-key.pem"
    openssl req -new -key "$2-key.pem" -subj "/CN=$2" -addext "subjectAltName=$3" -out "$work/request.pem"
    openssl ca -batch -notext -config "$work/$1.conf" -cert "$1.pem" -keyfile "$work/$1-key.pem" -in "$work/request.pem" \
        -startdate 20200101000000Z -enddate "$4" -out "$2.pem" 2> /dev/null
}

authority authority
authority stranger-authority
certificate authority bookie "DNS:localhost,IP:127.0.0.1" 21200101000000Z
certificate authority client "DNS:client" 21200101000000Z
certificate authority elsewhere "DNS:elsewhere.example" 21200101000000Z
certificate authority expired "DNS:localhost,IP:127.0.0.1" 20200102000000Z
certificate stranger-authority stranger "DNS:localhost,IP:127.0.0.1" 21200101000000Z
printf 'only for tests\n' > password
openssl pkcs8 -topk8 -in client-key.pem -passout file:password -v2 aes256 -v2prf hmacWithSHA256 -out client-key-encrypted.pem
