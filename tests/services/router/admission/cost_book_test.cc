#include "services/router/admission/cost_book.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moestro::router {
namespace {

PromptCost Chunked(uint32_t decoding, double seconds, bool alone = false) {
  return {.way = PromptWay::kChunked, .alone = alone, .decoding = decoding, .points = {{1000, seconds}}};
}

std::optional<double> SecondsOf(const CostBook& book, uint32_t decoding, bool alone = false) {
  return book.Seconds(PromptWay::kChunked, {.new_tokens = 100}, alone, decoding);
}

TEST(CostBookTest, KnowsNothingAtFirstAndOfARoleThatHasGone) {
  CostBook book;
  EXPECT_EQ(SecondsOf(book, 0), std::nullopt);
  book.Set(Role::kDecode, {Chunked(0, 1)});
  EXPECT_EQ(SecondsOf(book, 0), 1);
  EXPECT_EQ(book.Seconds(PromptWay::kInPlace, {.new_tokens = 100}, false, 0), std::nullopt);
  EXPECT_EQ(book.Seconds(PromptWay::kChunked, {.new_tokens = 1001}, false, 0), std::nullopt) << "too long";
  book.Set(Role::kPrefill, {});
  EXPECT_EQ(SecondsOf(book, 0), 1);
  book.Set(Role::kDecode, {});
  EXPECT_EQ(SecondsOf(book, 0), std::nullopt);
}

TEST(CostBookTest, TakesTheFiguresOfTheNextLargerNumberOfSequences) {
  CostBook book;
  book.Set(Role::kDecode, {Chunked(0, 1), Chunked(1, 2), Chunked(4, 3), Chunked(0, 0.5, true)});
  EXPECT_EQ(SecondsOf(book, 0), 1);
  EXPECT_EQ(SecondsOf(book, 1), 2);
  EXPECT_EQ(SecondsOf(book, 2), 3);
  EXPECT_EQ(SecondsOf(book, 4), 3);
  EXPECT_EQ(SecondsOf(book, 9), 3);
  EXPECT_EQ(SecondsOf(book, 0, /*alone=*/true), 0.5);
  EXPECT_EQ(SecondsOf(book, 1, /*alone=*/true), 2) << "of all cores it is not known";
}

TEST(CostBookTest, ARoleSpeaksOfItsOwnWaysOnly) {
  CostBook book;
  PromptCost in_place = Chunked(0, 7);
  in_place.way = PromptWay::kInPlace;
  book.Set(Role::kDecode, {in_place});
  EXPECT_EQ(book.Seconds(PromptWay::kInPlace, {.new_tokens = 100}, false, 0), std::nullopt);
  book.Set(Role::kPrefill, {in_place, Chunked(0, 1)});
  EXPECT_EQ(book.Seconds(PromptWay::kInPlace, {.new_tokens = 100}, false, 0), 7);
  EXPECT_EQ(SecondsOf(book, 0), std::nullopt);
}

TEST(CostBookTest, NonsenseIsAsGoodAsNothing) {
  CostBook book;
  for (const double seconds : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    book.Set(Role::kDecode, {Chunked(0, seconds)});
    EXPECT_EQ(SecondsOf(book, 0), std::nullopt) << seconds;
  }
}

TEST(CostBookTest, WhatPromptsTookCorrectsWithinBounds) {
  CostBook book;
  book.Set(Role::kDecode, {Chunked(0, 1)});
  // Prompts take twice what was measured. Each ratio is to the prediction of its moment.
  for (int i = 0; i < 30; ++i) book.Note(PromptWay::kChunked, 2 / *SecondsOf(book, 0));
  EXPECT_NEAR(*SecondsOf(book, 0), 2, 0.01);
  for (int i = 0; i < 100; ++i) book.Note(PromptWay::kChunked, 1000);
  EXPECT_EQ(SecondsOf(book, 0), CostBook::kMostCorrection);
  for (int i = 0; i < 100; ++i) book.Note(PromptWay::kChunked, 1e-9);
  EXPECT_EQ(SecondsOf(book, 0), 1 / CostBook::kMostCorrection);
  for (const double ratio : {0.0, -2.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    book.Note(PromptWay::kChunked, ratio);
    EXPECT_EQ(SecondsOf(book, 0), 1 / CostBook::kMostCorrection) << ratio;
  }
  EXPECT_EQ(book.correction(PromptWay::kStreamed), 1);
}

TEST(CostBookTest, OneOutlierMovesLittle) {
  CostBook book;
  book.Note(PromptWay::kChunked, 100);
  EXPECT_LT(book.correction(PromptWay::kChunked), 1.5);
}

TEST(CostBookTest, ACorrectionThatIsNotUsedFades) {
  CostBook book;
  for (int i = 0; i < 100; ++i) book.Note(PromptWay::kStreamed, 4);
  EXPECT_EQ(book.correction(PromptWay::kStreamed), 4);
  book.NoteChoice(PromptWay::kStreamed);
  EXPECT_EQ(book.correction(PromptWay::kStreamed), 4);
  for (int i = 0; i < 200; ++i) book.NoteChoice(PromptWay::kChunked);
  EXPECT_NEAR(book.correction(PromptWay::kStreamed), 1, 0.03);
}

TEST(CostBookTest, NewFiguresBeginWithoutCorrection) {
  CostBook book;
  book.Set(Role::kDecode, {Chunked(0, 1)});
  book.Note(PromptWay::kChunked, 2);
  const double corrected = *SecondsOf(book, 0);
  book.Set(Role::kDecode, {Chunked(0, 1)});  // the router asks again and again
  EXPECT_EQ(SecondsOf(book, 0), corrected);
  book.Set(Role::kDecode, {Chunked(0, 3)});
  EXPECT_EQ(SecondsOf(book, 0), 3);
}

}  // namespace
}  // namespace moestro::router
