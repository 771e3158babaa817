#include "base/hmac.h"

#include <string>
#include <string_view>

#include "check.h"

using namespace hvdtune;

static Bytes bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

static std::string hex(const Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

TEST(sha256_matches_fips_180_examples) {
  CHECK_EQ(hex(sha256(bytes("abc"))),
           "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(hex(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(hex(sha256(bytes(std::string(1'000'000, 'a')))),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256_does_not_depend_on_how_data_is_cut) {
  const std::string text(1000, 'x');
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += 7) {
    hash.update(bytes(std::string_view(text).substr(at, 7)));
  }
  CHECK_EQ(hex(hash.finish()), hex(sha256(bytes(text))));
}

TEST(hmac_matches_rfc_4231_case_1) {
  // The RFC's 20-byte key, zero-padded: HMAC pads keys with zeros, so the digest is the same.
  Key key{};
  for (size_t i = 0; i < 20; ++i) key[i] = 0x0b;
  CHECK_EQ(hex(hmac_sha256(key, bytes("Hi There"))),
           "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(digests_of_different_length_differ) {
  const Digest digest = sha256(bytes("x"));
  CHECK(digests_equal(digest, digest));
  CHECK(!digests_equal(digest, Bytes(digest).first(31)));
}
