// Unicode's normalization forms, and clusters of characters.
#pragma once
#include <string>
#include <string_view>

namespace nn::text {

enum class Form { c, d, kc, kd };

// Appends the text in a normalization form to `out`. Invalid bytes stay.
void normalize(std::string_view text, Form form, std::string& out);

// The length in bytes of the extended grapheme cluster at the begin of a text that is not empty.
size_t cluster_length(std::string_view text);

}  // namespace nn::text
