<?php
// Counts the words of a long text in many small jobs: this one cuts the text into paragraphs and
// asks for a job of the type count_words for each; what they find is summed up by collect_words.
//
//   windlass handler set count_words examples/count_words.py
//   windlass handler set collect_words examples/collect_words.php
//   windlass run examples/fan_out.php --payload "$(cat README.md)"
//   windlass jobs list --type collect_words
//
// windlass: timeout=10s
$parts = preg_split('/\n\s*\n/', $payload, -1, PREG_SPLIT_NO_EMPTY);
if (!$parts) {
    return ['status' => 400, 'data' => 'there is no text'];
}
foreach ($parts as $number => $text) {
    $part = ['run' => $job->id, 'number' => $number, 'of' => count($parts), 'text' => $text];
    // The result of that job becomes the payload of one of the type collect_words.
    $emit('count_words', $part, ['then' => 'collect_words']);
}
echo count($parts), " parts\n";
